"""The first hour, walked in a browser with files of real size: how many clicks until an answer is drawn.

As a test each walk stops at its first figure, and every page on the way is looked at. `./lab walks` goes on
to the end and prints the seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from labtools.testing import WALKS as LETTERS
from tests.conftest import SHARED_DATA
from tests.webapp.browser import browser_page, enter
from tests.webapp.cast import ready
from tests.webapp.walks import files
from tests.webapp.walks.laboratory import ASKED, WHOLE, Laboratory
from tests.webapp.walks.walker import Walker
from webapp.accounts.models import User
from webapp.accounts.services import create_project

SO_FAR = re.compile(r"of \d+ so far")


def walk_from_a_model_to_what_fits(walk: Walker) -> None:
    """Qwen2-1.5B's configuration to what fits an RTX 4090"""
    page = walk.page
    walk.begin()
    walk.look()
    walk.choose_file(files.config("qwen2-1.5b.json", files.QWEN2))
    page.wait_for_url("**/artifacts/*/?devices=rtx-4090-24g")
    walk.see(".device-bars")
    walk.mark("what the step needs, on every device")
    walk.look()
    walk.click("Try all memory policies")
    page.locator("#figure-plot .point").first.wait_for()
    walk.mark("first figure", wanted=10)
    walk.see("#figure-plot .plot-container")
    walk.go_on("all policies", page.locator(".finding", has_not_text=SO_FAR), wanted=60)
    walk.look()
    walk.end(most=4)


def walk_from_a_model_to_the_best_plan(walk: Walker) -> None:
    """Llama 2 7B's configuration to the best plan on 64 H100"""
    page = walk.page
    walk.begin()
    walk.choose_file(files.config("llama-2-7b.json", files.LLAMA2))
    page.wait_for_url("**/artifacts/*/?devices=*")
    walk.click("What should I do?", role="link")
    walk.spare()
    walk.look()
    walk.write(page.get_by_label("How many"), "8")
    walk.click("Find the best plan")
    walk.see("#front .plot-container")
    walk.mark("best plan", wanted=60)
    walk.look()
    assert page.get_by_label("On", exact=True).input_value() == "dgx-h100"
    walk.end(most=4, keys=3)


def walk_from_jobs_to_the_best_scheduler(walk: Walker) -> None:
    """a trace of 876 jobs to the best scheduler"""
    page = walk.page
    walk.begin()
    walk.choose_file(files.job_trace(SHARED_DATA))
    page.wait_for_url("**/artifacts/*/?devices=*")
    walk.see("#demand-figure .plot-container")
    walk.mark("demand against capacity")
    walk.look()
    page.get_by_role("button", name="Try all schedulers").click()
    page.locator("#figure-plot .scatterlayer .trace").nth(1).wait_for()
    page.locator("#figure-plot .xtitle", has_text="job completion time").wait_for()
    walk.mark("first two of the overlaid distributions")
    walk.see("#figure-plot .plot-container")
    walk.go_on("all schedulers", page.locator(".finding", has_not_text=SO_FAR))
    walk.look()
    walk.end(most=4)


def walk_from_a_paper_to_my_model(walk: Walker) -> None:
    """a paper's system to its verdict to a run on one's own model"""
    page = walk.page
    ready(walk.project)
    walk.begin()
    walk.click("Systems", role="link", inside=".menu")
    walk.look()
    walk.click("vdnn-all", role="link")
    walk.see(".dots")
    walk.mark("verdict")
    walk.look()
    walk.click("Run vdnn-all and the baseline")
    page.wait_for_url("**/experiments/*-*/")
    walk.mark("experiment")
    walk.go_on("both runs", page.get_by_text("all ended"))
    walk.look()
    walk.end(most=3)


def walk_from_a_profile_to_where_time_went(walk: Walker) -> None:
    """a recorded profiler trace to where the time went"""
    file = files.profiler_trace(walk.laboratory.folder, steps=8 if WHOLE else 2)
    walk.begin()
    walk.choose_file(file)
    walk.page.wait_for_url("**/artifacts/*/?devices=*")
    walk.see("#profile-main .plot-container")
    walk.mark("where the time went")
    walk.look()
    walk.end(most=3)


def walk_through_a_second_team(walk: Walker) -> None:
    """a second team, an invitation, a viewer, all taken back"""
    page, cast, at = walk.page, walk.laboratory.cast, walk.laboratory.address
    enter(page, at, cast.ada)
    walk.begin()
    page.get_by_label("Project: switch").click()
    walk.click("New team", role="link", inside="header")
    walk.look()
    walk.write(page.get_by_label("Team name"), "Green")
    walk.click("Make the team")
    team = page.url
    walk.write(page.get_by_label("Project name"), "Speech")
    walk.click("Make the project")
    project = page.url
    walk.mark("a team with a project")
    first, second = (invite_as(walk, team, "viewer") for _ in range(2))
    walk.look()
    page.locator("summary", has_text="ada").click()
    walk.click("Sign out", inside="header")
    sign_up(walk, first)
    walk.mark("somebody has joined it")
    page.goto(project)
    page.get_by_text("Your role in this team is viewer").wait_for()
    assert page.locator("#id_files").is_disabled()
    walk.look()
    walk.click("Nightly", role="link", inside=".menu")
    walk.see("#sample-history .plot-container")
    enter(page, at, cast.ada)
    page.goto(team)
    page.locator("tr", has_text="grace").get_by_role("button", name="Remove").click()
    page.get_by_label("Role of grace").wait_for(state="detached")
    page.get_by_role("button", name="Revoke").first.click()
    page.get_by_text("The invitation opens nothing any more").wait_for()
    walk.look()
    walk.mark("all taken back")
    enter(page, at, User.objects.get(username="grace"))
    walk.find_refused(project)
    walk.find_refused(second)
    walk.look()
    walk.end(keys=200)


def invite_as(walk: Walker, team: str, role: str) -> str:
    """The link of a new invitation."""
    walk.page.goto(team)
    walk.choose(walk.page.get_by_label("Invite as"), role)
    walk.click("Make an invitation link")
    return walk.page.locator("#link").inner_text()


def sign_up(walk: Walker, link: str) -> None:
    """As grace, whom the team did not know."""
    page = walk.page
    page.goto(link)
    page.get_by_role("heading", name="Join Green").wait_for()
    walk.look()
    walk.write(page.get_by_label("Username"), "grace")
    for field in page.locator("input[type=password]").all():
        walk.write(field, "correct horse battery")
    walk.click("Make the account and join")
    page.wait_for_url("**/t/green/**")


WALKS: dict[str, Callable[[Walker], None]] = {
    "a": walk_from_a_model_to_what_fits,
    "b": walk_from_a_model_to_the_best_plan,
    "c": walk_from_jobs_to_the_best_scheduler,
    "d": walk_from_a_paper_to_my_model,
    "e": walk_from_a_profile_to_where_time_went,
    "f": walk_through_a_second_team,
}


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.django_db(transaction=True)
def test_the_first_hour(lab: Laboratory, walked: dict[str, Walker], subtests: pytest.Subtests) -> None:
    """Each walk begins in a project as empty as the first."""
    assert "".join(WALKS) == LETTERS
    for letter in ASKED or WALKS:
        title = f"({letter}) {WALKS[letter].__doc__}"
        project = create_project(lab.cast.red, f"Walk {letter}")
        refusals: list[str] = []
        with subtests.test(title), browser_page(width=1440, expected=refusals) as page:
            enter(page, lab.address, lab.cast.max)
            walker = Walker(page, lab, project, refusals)
            WALKS[letter](walker)
            walked[title] = walker
        lab.end_all_runs()
