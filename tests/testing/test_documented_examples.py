"""The examples of docs/testing-your-handlers.md, run as their readers run them: in files of their own, by pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from cases import first_ones

PAGE = Path(__file__).parents[2] / "docs" / "testing-your-handlers.md"


@first_ones("server", ["memory", "embedded"], 1)
def test_each_example_of_the_page_is_a_test_that_passes(server, tmp_path):
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--ampsq-server={server}",
        str(tmp_path),
    ]

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "AMPSQ_URL": ""},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(examples)} passed" in done.stdout
    assert len(examples) == 6
