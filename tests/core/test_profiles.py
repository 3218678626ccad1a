"""What the profiles say must be what the blueprint builds, and be priced."""

import yaml
from lustrum.core.cost import prices
from lustrum.core.profiles import profiles

from infra.local.functions import ROOT


class TestProfiles:
    def test_head_machine_is_that_of_the_blueprints_system_pool(self) -> None:
        blueprint = yaml.safe_load((ROOT / "infra" / "blueprint" / "rl-a4.yaml").read_text())
        text = yaml.safe_dump(blueprint)
        for profile in profiles().values():
            if profile.machine != "local":
                assert f"system_node_pool_machine_type: {profile.head.machine}" in text

    def test_every_machine_has_a_price(self) -> None:
        for profile in profiles().values():
            prices().node(profile.machine, "spot")
            prices().node(profile.head.machine, "on-demand")
