import os
from pathlib import Path

from neuroswarm.hardware.storage import is_sd_card


def number_of(path: Path) -> str:
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def fake_disk(root: Path, path: Path, name: str) -> None:
    block = root / "sys/dev/block"
    block.mkdir(parents=True)
    (block / number_of(path)).symlink_to(f"../../devices/platform/{name}/block/{name}")


def test_a_folder_on_a_card_is_recognised_also_before_it_exists(tmp_path: Path):
    fake_disk(tmp_path / "root", tmp_path, "mmcblk0p2")
    assert is_sd_card(tmp_path, root=tmp_path / "root")
    assert is_sd_card(tmp_path / "not" / "yet", root=tmp_path / "root")


def test_another_disk_is_none(tmp_path: Path):
    fake_disk(tmp_path / "root", tmp_path, "nvme0n1p1")
    assert not is_sd_card(tmp_path, root=tmp_path / "root")


def test_a_file_system_without_a_disk_number_is_known_by_its_mount(tmp_path: Path):
    info = tmp_path / "root/proc/self/mountinfo"
    info.parent.mkdir(parents=True)
    line = "36 25 {} /@home /home rw,relatime shared:1 - btrfs /dev/mmcblk0p3 rw\n"
    info.write_text("bad line\n" + line.format(number_of(tmp_path)))
    assert is_sd_card(tmp_path, root=tmp_path / "root")


def test_where_nothing_is_told_it_is_no_card(tmp_path: Path):
    assert not is_sd_card(tmp_path, root=tmp_path / "nothing")
