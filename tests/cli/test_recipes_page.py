"""docs/recipes.md says of each profile what `lustrum plan` says."""

from __future__ import annotations

from lustrum.core.profiles import profiles

from infra.recipe_page import BEGIN, PAGE, page, plans


def without_prices(text: str) -> list[list[str]]:
    """Return the cells of the profiles' table, prices left out: those change with the list."""
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [row.split("|")[1:7] for row in rows if row.count("|") == 9]


class TestPage:
    def test_the_table_is_what_the_plans_say(self) -> None:
        held = PAGE.read_text().partition(BEGIN)[2]
        assert without_prices(held) == without_prices(plans())
        assert len(without_prices(held)) == len(profiles()) - 1

    def test_each_profile_has_its_plan(self) -> None:
        held = PAGE.read_text()
        for name, profile in profiles().items():
            if profile.machine != "local":
                assert f"### {name}\n{profile.about}." in held

    def test_the_rest_of_the_page_stays(self) -> None:
        text = f"# A\n\n{BEGIN}\nold"
        assert page(text).startswith(f"# A\n\n{BEGIN}\n\n## Profiles\n")
        assert "old" not in page(text).splitlines()
