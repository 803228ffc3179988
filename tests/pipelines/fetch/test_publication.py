import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pipelines.errors import BadUsage, FetchError
from pipelines.fetch import publication as publications
from pipelines.fetch.download import mismatch
from pipelines.fetch.publication import publication, published_names, read_publication

GOOD = """
name = "trace"
title = "A trace"
publisher = "Nobody"
licence = "CC0"
homepage = "https://example.org/"
citation = "None"
next = "None"

[[files]]
name = "table.csv"
url = "https://example.org/table.csv"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
size_bytes = 1
"""
UNPACK = '[files.unpack]\nmax_bytes = 1\n[[files.unpack.members]]\npath = "{path}"\n'


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", published_names())
def test_every_manifest_holds_and_describes_itself(name: str) -> None:
    published = publication(name)
    header = (publications.MANIFESTS / f"{name}.toml").read_text(encoding="utf-8").split("\n\n")[0]

    assert published.name == name
    assert all(urlsplit(file.url).scheme == "https" for file in published.files)
    if name != "energy":  # its files are named after the layout of TAUT_ENERGY
        assert all(urlsplit(file.url).path.endswith(f"/{Path(file.name).name}") for file in published.files)
    assert max(Counter(file.sha256 for file in published.files if file.sha256).values()) == 1
    assert all(re.search("/[0-9a-f]{40}/", file.url) for file in published.files if file.sha256 is None)
    assert all(
        field in header
        for field in ("publisher", "licence", "citation", "sha256", "size_bytes", "max_bytes", "members")
    )


@pytest.mark.parametrize(("name", "folder"), [("openb", "traces/openb/csv"), ("energy", "energy")])
def test_the_manifest_is_of_the_real_files(name: str, folder: str, traces: Path) -> None:
    real = traces.parent / folder
    if not real.is_dir():
        pytest.skip(f"no {folder} here")
    files = [file for file in publication(name).files if file.sha256 is not None]

    faults = {file.name: mismatch(real / file.name, size_bytes=file.size_bytes, sha256=file.sha256) for file in files}

    assert len(files) > 20
    assert set(faults.values()) == {None}


@pytest.mark.parametrize("name", ["nosuch", "", "../manifests/pai", "PAI"])
def test_an_unknown_name_is_bad_usage(name: str) -> None:
    with pytest.raises(BadUsage, match="expected one of: energy, helios, openb, pai, pai-sample, philly"):
        publication(name)


def test_absent_manifests_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(publications, "MANIFESTS", tmp_path / "absent")

    with pytest.raises(FetchError, match="run taut from a clone"):
        publication("pai")


@pytest.mark.parametrize(
    ("found", "changed", "fault"),
    [
        ('name = "table.csv"', 'name = "../table.csv"', "files.0.name"),
        ('name = "table.csv"', 'name = ".table.csv"', "files.0.name"),
        ('name = "table.csv"', 'name = "a/../b"', "files.0.name"),
        ('name = "table.csv"', 'name = "/b"', "files.0.name"),
        ('name = "table.csv"', 'name = "table.csv\\n"', "files.0.name"),
        ("https://example.org/table", "http://example.org/table", "files.0.url"),
        ("https://example.org/table", "file:///etc/table", "files.0.url"),
        ("0" * 64, "0" * 63, "files.0.sha256"),
        ("0" * 64, "A" * 64, "files.0.sha256"),
        ("size_bytes = 1", "size_bytes = -1", "files.0.size_bytes"),
        ("size_bytes = 1", "", "needs either size_bytes or max_bytes"),
        (f'sha256 = "{"0" * 64}"\nsize_bytes', "max_bytes", "needs sha256 or size_bytes"),
        ("size_bytes = 1", "size_bytes = 1\nmax_bytes = 2", "needs either size_bytes or max_bytes"),
        ("size_bytes = 1", "size_bytes = 1\nsize = 2", "files.0.size: Extra inputs"),
        ('licence = "CC0"', "", "licence: Field required"),
        ("size_bytes = 1", "size_bytes = 1\n" + UNPACK.format(path="../log"), "files.0.unpack.members.0.path"),
        ("size_bytes = 1", "size_bytes = 1\n" + UNPACK.format(path="/log"), "files.0.unpack.members.0.path"),
        ("size_bytes = 1", "size_bytes = 1\n[files.unpack]\nmax_bytes = 1\nmembers = []", "files.0.unpack.members"),
    ],
)
def test_a_manifest_that_does_not_hold_names_its_fault(tmp_path: Path, found: str, changed: str, fault: str) -> None:
    assert found in GOOD

    with pytest.raises(FetchError, match=fault):
        read_publication(_write(tmp_path, GOOD.replace(found, changed)))


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    twice = GOOD + GOOD[GOOD.index("[[files]]") :]

    with pytest.raises(FetchError, match=r"names repeat: \['table.csv'\]"):
        read_publication(_write(tmp_path, twice))


@pytest.mark.parametrize("text", [None, "= not toml", "\x00"])
def test_a_file_that_is_no_manifest_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "absent.toml" if text is None else _write(tmp_path, text)

    with pytest.raises(FetchError, match="cannot read the manifest"):
        read_publication(path)
