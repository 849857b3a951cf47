"""Runs a plan of `vanward lab resilience`, with a test for each of its expectations: pytest -v"""

import os
import pathlib
import subprocess
import tempfile
import xml.etree.ElementTree as xml

import pytest

HERE = pathlib.Path(__file__).parent


def cases():
    program = os.environ.get("VANWARD", "vanward")
    with tempfile.TemporaryDirectory() as out:
        run = subprocess.run([program, "lab", "resilience", "plan.toml", "--quick", "--out", out], cwd=HERE)
        # 99: an expectation was missed. Which one is in junit.xml.
        assert run.returncode in (0, 99), run
        results = xml.parse(pathlib.Path(out) / "junit.xml")
    for case in results.getroot().iter("testcase"):
        failure = case.find("failure")
        measured = None if failure is None else failure.get("message")
        yield pytest.param(measured, id=f"{case.get('classname')}: {case.get('name')}")


@pytest.mark.parametrize("measured", list(cases()))
def test_resilience(measured):
    assert measured is None, measured
