"""assign: names, paths, values by copy, expressions as keys."""

from __future__ import annotations

from engine_tests.support import failure, faults, result


class TestAssign:
    def test_later_assignments_see_earlier_ones(self) -> None:
        source = """
            - set: {assign: [{a: 1}, {b: "${a + 1}"}, {a: "${b * 10}"}]}
            - give: {return: ["${a}", "${b}"]}
        """
        assert result(source) == [20, 2]

    def test_a_list_element_is_written_by_index_expression(self) -> None:
        source = """
            - set:
                assign:
                  - l: [[10, 11], "one"]
                  - i: 0
                  - l[i + 1]: two
                  - l[0][len(l) - 1]: x
            - give: {return: "${l}"}
        """
        assert result(source) == [[10, "x"], "two"]

    def test_an_index_outside_the_list_is_an_index_error(self) -> None:
        for index in ("2", "-1"):
            source = f"""
                - set: {{assign: [{{l: [1, 2]}}, {{"l[{index}]": 3}}]}}
            """
            assert failure(source)["tags"] == ["IndexError", "LookupError"]

    def test_a_key_of_text_or_number_cannot_be_assigned(self) -> None:
        assert failure('- s: {assign: [{t: "x"}, {t.a: 1}]}')["tags"] == ["TypeError"]
        assert failure('- s: {assign: [{m: {}}, {"m[1]": 1}]}')["tags"] == ["TypeError"]

    def test_assignment_copies(self) -> None:
        source = """
            - set:
                assign:
                  - a: {list: [1, 2], map: {x: 1}}
                  - b: ${a}
                  - c: ${a.list}
                  - a.list[0]: changed
                  - a.map.x: changed
                  - b.map.y: 2
            - give: {return: ["${a}", "${b}", "${c}"]}
        """
        assert result(source) == [
            {"list": ["changed", 2], "map": {"x": "changed"}},
            {"list": [1, 2], "map": {"x": 1, "y": 2}},
            [1, 2],
        ]

    def test_a_literal_is_fresh_in_each_iteration(self) -> None:
        source = """
            - init: {assign: [{seen: []}]}
            - loop:
                for:
                  value: v
                  range: [1, 2]
                  steps:
                    - fresh: {assign: [{m: {}}]}
                    - write: {assign: [{"m[string(v)]": 1}]}
                    - keep: {assign: [{seen: "${list.concat(seen, keys(m))}"}]}
            - give: {return: "${seen}"}
        """
        assert result(source) == [["1"], ["2"]]

    def test_keys_of_a_map_may_be_expressions_and_numbers(self) -> None:
        source = """
            - set:
                assign:
                  - k: Middle
                  - m:
                      first: 1
                      ${k + "Name"}: Apple
                      3: three
            - give: {return: "${m}"}
        """
        assert result(source) == {"first": 1, "MiddleName": "Apple", "3": "three"}

    def test_a_key_that_is_not_text_is_a_type_error(self) -> None:
        source = """
            - set:
                assign:
                  - k: 1
                  - m: {"${k}": 1}
        """
        assert failure(source)["tags"] == ["TypeError"]

    def test_yaml_is_read_by_its_newer_rules(self) -> None:
        source = """
            - give:
                return: [12:30, 2021-01-01, 010, 1e3, .5, ~, TRUE, "yes", 0x1F, -5]
        """
        value = result(source)
        assert value == ["12:30", "2021-01-01", 10, 1000.0, 0.5, None, True, "yes", "0x1F", -5]

    def test_51_assignments_are_refused_and_50_are_not(self) -> None:
        for count in (50, 51):
            source = "- s:\n    assign:\n" + "".join(f"    - v{i}: 1\n" for i in range(count))
            if count == 50:
                assert result(source) is None
            else:
                assert "51 assignments" in faults(source)[0]

    def test_a_path_needs_its_variable(self) -> None:
        assert "symbol 'm'" in faults("- s: {assign: [{m.x: 1}]}")[0]
