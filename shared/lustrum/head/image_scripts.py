"""Programs that the image's own Python runs while the data is staged, each as its text: the head
itself has the standard library alone. Written for NeMo-RL v0.4.0 to v0.7.0; what another release
lacks is left out.
"""

# Arguments: file of the answer, algorithm, config.yaml of the resumed step or "", the training's
# --config, its overrides. The answer: {"refused": sentence} or {"config": ..., "resumed": ...}.
LOAD_CONFIG = r"""
import importlib, json, sys
from omegaconf import OmegaConf
from nemo_rl.utils import config as own

answer_file, algorithm, resumed, path, *overrides = sys.argv[1:]
if hasattr(own, "register_omegaconf_resolvers"):
    own.register_omegaconf_resolvers()
for name, call in (("mul", lambda a, b: a * b), ("div", lambda a, b: a / b), ("max", max)):
    if not OmegaConf.has_resolver(name):
        OmegaConf.register_new_resolver(name, call)
answer = {}
try:
    loaded = own.load_config(path)
    if overrides:
        loaded = own.parse_hydra_overrides(loaded, overrides)
    answer["config"] = OmegaConf.to_container(loaded, resolve=True)
except Exception as error:
    answer["refused"] = " ".join(f"{type(error).__name__}: {error}".split())
if "config" in answer:
    try:  # from v0.7.0 on a pydantic model; the module needs torch, which a head may not load
        model = importlib.import_module("nemo_rl.algorithms." + algorithm).MasterConfig
        if hasattr(model, "model_validate"):
            model(**answer["config"])
    except Exception as error:
        if type(error).__name__ == "ValidationError":
            answer["refused"] = " ".join(f"MasterConfig: {error}".split())
if resumed:
    try:
        answer["resumed"] = OmegaConf.to_container(OmegaConf.load(resumed), resolve=False)
    except Exception as error:
        print(f"lustrum: {resumed}: {error}")
with open(answer_file, "w", encoding="utf-8") as file:
    json.dump(answer, file, default=str)
"""

# Arguments: the answer of LOAD_CONFIG, algorithm. Fills the data sets' cache as setup would.
FETCH_DATA = r"""
import inspect, json, sys
from nemo_rl.data import datasets as own

with open(sys.argv[1], encoding="utf-8") as file:
    config = json.load(file)["config"]
data, algorithm = config["data"], sys.argv[2]
load = own.load_preference_dataset if algorithm == "dpo" else own.load_response_dataset
if "train" in data:  # v0.6.0 on
    from nemo_rl.data.datasets.utils import update_single_dataset_config
    for part in (data.get("train"), data.get("validation")):
        for one in [part] if isinstance(part, dict) else part or []:
            if data.get("default") is not None:
                update_single_dataset_config(one, data["default"])
            load(one)
elif "seed" in inspect.signature(load).parameters:
    load(data, config[algorithm].get("seed", 42))
else:
    load(data)
"""
