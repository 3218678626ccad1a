"""The guide's program runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from workflows_engine.mock_file import read_mocks

GUIDE = Path(__file__).parents[1] / "README.md"


class TestGuide:
    def test_the_example_program_runs(self) -> None:
        blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
        program = next(block for block in blocks if "virtual.run" in block)
        exec(compile(program, str(GUIDE), "exec"), {})

    def test_the_example_of_mocks_is_a_file_of_mocks(self) -> None:
        blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
        file = read_mocks(next(block for block in blocks if block.startswith("mocks:")))
        assert len(file.mocks) == 4 and len(file.callbacks) == 1

    def test_every_documented_limit_is_the_enforced_one(self) -> None:
        from workflows_engine import limits

        text = " ".join(GUIDE.read_text(encoding="utf-8").split())
        for phrase, value in (
            ("source 128 KB", limits.SOURCE_BYTES == 128 * 1024),
            ("argument 32 KB", limits.ARGUMENT_BYTES == 32 * 1024),
            ("memory and result 512 KB", limits.MEMORY_BYTES == limits.RESULT_BYTES == 512 * 1024),
            ("string 256 KB", limits.STRING_BYTES == 256 * 1024),
            ("HTTP response 2 MB", limits.HTTP_RESPONSE_BYTES == 2 * 1024 * 1024),
            ("expression 400 characters", limits.EXPRESSION_CHARACTERS == 400),
            ("100,000 steps", limits.STEPS == 100_000),
            ("20 calls deep", limits.CALL_DEPTH == 20),
            ("10 branches", limits.BRANCHES == 10),
            ("50 assignments", limits.ASSIGNMENTS == 50),
            ("50 conditions", limits.CONDITIONS == 50),
        ):
            assert phrase in text
            assert value, phrase
