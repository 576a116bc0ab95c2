"""A rollout as a terminal shows it: phases in place, at 80 columns and narrower, around a question and Ctrl-C."""

import re

from screen import shown


def test_the_phases_of_a_rollout_are_redrawn_in_place_and_stay(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"slow": 40})))
    arguments = ("rollout", "--spec", "ngram", "--policy", mpctl.policy())
    del mpctl.environment["MPCTL_YES"]
    lines = shown(mpctl.typed_out(80, *arguments, typed={"Continue (": "y\n"}), 80)
    screen = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert screen.count("Continue (") == 1
    assert len(re.findall(r"(?m)^(ok|> ) engines ", screen)) == 1, screen
    assert re.search(r"(?m)^ok engines +\d", screen)
    assert re.search(r"(?m)^ok rounds +\d", screen)
    assert re.search(r"(?m)^ +throughput ratio [\d.]+x \([\d.]+x to [\d.]+x\)$", screen)
    assert re.search(r"(?m)^ok promotion +\d", screen)
    assert "Promoted. Took " in " ".join(lines)
    assert "'mpctl report demo --open' shows it as a page" in " ".join(screen.split())


def test_a_terminal_that_becomes_narrower_shows_every_interval_whole(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"slow": 40})))
    arguments = ("rollout", "--spec", "ngram", "--policy", mpctl.policy(), "--yes")
    text = mpctl.typed_out(80, *arguments, typed={"round 2 of": 60})
    after = text.partition("round 3 of")[2]
    bare = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", after).splitlines()
    measured = [line for line in bare if line.startswith("     throughput ratio")]
    assert measured and all(len(line) < 60 for line in measured)
    assert all(re.search(r"\(([\d.]+x to [\d.]+x|no interval yet)\)", line) for line in measured)


def test_ctrl_c_leaves_the_phases_where_they_are(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"slow": 40})))
    arguments = ("rollout", "--spec", "ngram", "--policy", mpctl.policy(), "--yes")
    lines = shown(mpctl.typed_out(80, *arguments, code=2, typed={"round 1 of": "^C"}), 80)
    at = lines.index("stopping; press Ctrl-C again to stop at once")
    assert any(line.startswith(">  rounds") for line in lines[:at])
    assert not any(line.startswith(">  rounds") for line in lines[at:])
    assert any(line.startswith("error: ") for line in lines[at:])
    resumed = shown(mpctl.typed_out(80, "resume"), 80)
    assert any(line.startswith("ok rounds") for line in resumed)
