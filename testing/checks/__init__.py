"""What must hold at every moment of a simulated life, judged apart from the product's own rules.

`trial` is what all checks share; `writes` sees every change of a record, `effects` every call
that changes the cloud, `calls` the order and the pace of what is asked, `ending` the end.
"""
