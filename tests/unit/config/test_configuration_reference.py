"""docs/configuration.md says what the settings are."""

from pathlib import Path

from neuroswarm.cli.settings import setting_paths
from neuroswarm.config.flat import FLAT_PATHS
from neuroswarm.config.reference import render_reference

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == render_reference(), "run `make docs`"


def test_page_has_every_setting_and_every_flat_name():
    page = render_reference()
    assert [path for path in setting_paths() if f"| `{path}` |" not in page] == []
    assert [name for name in FLAT_PATHS if f"Flat name: `{name}`." not in page] == []
