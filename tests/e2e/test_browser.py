"""What only a browser can tell: layout, policy, keys and countdowns, and life without script."""

import os
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model

from disputes.clock import database_now
from disputes.transitions.resolving import resolve
from disputes.transitions.reviewing import acknowledge, extend_hold
from tests.situations import HOUR, MINUTE, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

# A folder for pictures of every page, for people who change the stylesheet.
PICTURES = os.environ.get("PICTURES", "")
LONG = "ref-" + "x" * 190
HOSTILE = "<script>document.title='owned'</script>\u202egnp.exe"


@pytest.fixture
def situation(db):
    """Queues with something of everything; ada reviews standard and senior, and may approve."""
    default_ladder()
    now = database_now()
    ada = person("ada", "standard", "senior", rights=("assign", "approve"))
    ben = person("ben", "standard")
    first = opened(
        now=now - 95 * MINUTE,
        reference="dp_1MxQ7Q",
        reason_code="10.4 fraud, card absent",
        source="stripe",
        external_due_at=now + 60 * HOUR,
    )
    opened(now=now - 3 * HOUR, reference="QFQT-CQ8", amount=Decimal("1200"), currency="JPY")
    opened(now=now, reference=LONG, reason_code=HOSTILE, amount=Decimal("12.345"), currency="KWD")
    opened(now=now, reference=HOSTILE, external_due_at=now + 5 * HOUR, external_due_estimated=True)
    opened(now=now, reference="case-17", kind="complaint", amount=None, currency="", band="high")
    mine = opened(now=now - HOUR, reference="dp_mine", external_due_at=now + 30 * HOUR)
    acknowledge(mine.pk, actor=ada, seen_version=1, now=now)
    bens = opened(now=now, reference="dp_bens")
    acknowledge(bens.pk, actor=ben, seen_version=1, now=now - MINUTE)
    done = opened(now=now, reference="dp_done")
    acknowledge(done.pk, actor=ada, seen_version=1, now=now)
    resolve(done.pk, outcome="accepted", actor=ada, reason="Small.\nNot worth it.", now=now)
    return {"first": first, "mine": mine, "bens": bens, "done": done}


def sign_in(page, name: str = "ada") -> None:
    page.goto("/sign-in/")
    page.fill("#id_username", name)
    page.fill("#id_password", "pw")
    page.click("main button")
    page.wait_for_url("**/queues/")


def addresses(situation) -> dict[str, str]:
    return {
        "queues": "/queues/",
        "queue": "/queues/default/standard/",
        "all": "/queues/default/standard/?view=all&sort=amount",
        "empty": "/queues/default/senior/",
        "open": f"/disputes/{situation['first'].pk}/",
        "mine": f"/disputes/{situation['mine'].pk}/",
        "bens": f"/disputes/{situation['bens'].pk}/",
        "done": f"/disputes/{situation['done'].pk}/",
        "me": "/me/",
        "forbidden": "/queues/default/compliance/",
        "missing": "/disputes/00000000-0000-0000-0000-000000000000/",
    }


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_its_window_and_breaks_no_policy(page, situation, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto("/sign-in/")
    picture(page, f"sign-in-{scheme}-{width}")
    sign_in(page)
    for name, address in addresses(situation).items():
        page.goto(address)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{name} is {wide} px wide"
        assert page.locator("h1").count() == 1, name
        assert page.title() != "owned"
        picture(page, f"{name}-{scheme}-{width}")


def picture(page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_a_row_says_the_words_of_its_column_once(page, situation, width):
    page.set_viewport_size({"width": width, "height": 900})
    sign_in(page)
    page.goto("/queues/default/standard/")
    row = page.locator("tr", has_text="dp_1MxQ7Q")
    usual = row.locator(".clock.brief .words")
    # For screen readers they are there; for eyes the heading or the card's label says them.
    assert usual.all_inner_texts() == ["Escalates in", "Evidence due"]
    assert {word.bounding_box()["width"] for word in usual.all()} == {1}
    lines = row.locator(".clock").evaluate_all("all => all.map(e => e.offsetHeight)")
    if width > 320:
        assert max(lines) < 32, "a clock takes one line"
    picture(page, f"queue-words-{width}")


def test_the_buttons_of_my_work_stand_in_one_line_and_are_equally_wide(page, situation):
    sign_in(page)
    page.goto("/me/")
    first, second = (b.bounding_box() for b in page.locator("td.action button").all())
    assert first["y"] == second["y"]
    assert abs(first["width"] - second["width"]) < 1


def test_a_code_in_a_reason_breaks_between_its_words_only(page, situation):
    opened(now=database_now(), reference="coded", reason_code="product_unacceptable_or_withdrawn")
    sign_in(page)
    page.goto("/queues/default/standard/")
    cell = page.locator("tr", has_text="coded").locator("td.reason bdi")
    ends = cell.evaluate(
        """bdi => [...bdi.childNodes].filter(n => n.nodeType === 3).map(text => {
             const range = document.createRange(); range.selectNodeContents(text);
             return range.getClientRects().length; })"""
    )
    assert len(ends) == 4
    assert set(ends) == {1}, "a word lies on two lines"


def test_a_form_sent_after_the_session_ended_is_filled_in_again(page, situation):
    sign_in(page)
    page.goto(f"/disputes/{situation['mine'].pk}/")
    page.click("summary:has-text('Resolve')")
    page.select_option("#resolve_outcome", "accepted")
    page.fill("#resolve_reason", "Typed before the session ended")
    page.context.clear_cookies(name="sessionid")
    page.click("details[open] button")
    assert "What you typed is kept" in page.inner_text("main")
    picture(page, "sign-in-kept")
    page.fill("#id_username", "ada")
    page.fill("#id_password", "pw")
    page.click("main button")
    assert "nothing was done" in page.inner_text("[role=status]")
    picture(page, "kept-form")
    assert page.input_value("#resolve_reason") == "Typed before the session ended"
    page.click("details[open] button")
    page.wait_for_selector(".message.success")
    assert again(situation["mine"]).outcome == "accepted"


@pytest.mark.parametrize("width", [320, 1280])
def test_who_comes_second_reads_who_was_first_and_keeps_the_text(page, situation, width):
    page.set_viewport_size({"width": width, "height": 900})
    ada, ben = (get_user_model().objects.get(username=name) for name in ("ada", "ben"))
    sign_in(page)
    page.goto("/queues/default/standard/")
    acknowledge(situation["first"].pk, actor=ben, seen_version=1, now=database_now())
    page.locator("tr", has_text="dp_1MxQ7Q").get_by_role("button").click()
    assert "ben took this" in page.inner_text("[role=status]")
    picture(page, f"conflict-queue-{width}")
    page.goto(f"/disputes/{situation['mine'].pk}/")
    page.click("summary:has-text('Resolve')")
    page.select_option("#resolve_outcome", "accepted")
    page.fill("#resolve_reason", "Typed before it changed")
    extend_hold(situation["mine"].pk, actor=ada, now=database_now())
    page.click("details[open] button")
    assert "it changed since you saw it" in page.inner_text("[role=status]")
    assert page.input_value("#resolve_reason") == "Typed before it changed"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture(page, f"conflict-dispute-{width}")


def test_the_administration_breaks_no_policy_from_copy_to_publishing(page, situation):
    get_user_model().objects.create_superuser("root", "root@example.com", "pw")
    page.goto("/admin/")
    page.fill("#id_username", "root")
    page.fill("#id_password", "pw")
    page.click("input[type=submit]")
    page.goto("/admin/disputes/ladderrevision/")
    page.click("#result_list tbody th a")
    picture(page, "admin-published")
    page.click("input[value='Copy into a draft']")
    page.fill("#id_tiers-0-sla", "03:00:00")
    picture(page, "admin-draft")
    page.click("input[name=_publish]")
    assert "Published for new disputes" in page.inner_text(".messagelist")
    for address in ("queue/1/change/", "dispute/", "auditentry/", "ladder/1/change/"):
        page.goto(f"/admin/disputes/{address}")
        picture(page, f"admin-{address.replace('/', '-')}")
    page.goto("/admin/django_rq/dashboard/")
    picture(page, "admin-rq")
    assert "notifications" in page.inner_text("#content")


def test_targets_are_large_enough_to_hit(page, situation):
    sign_in(page)
    for name, address in addresses(situation).items():
        page.goto(address)
        small = page.evaluate(
            """[...document.querySelectorAll("button, summary, nav a, select, textarea")]
               .filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 24)
               .map(e => e.outerHTML.slice(0, 120))"""
        )
        assert small == [], name


def test_keys_move_and_acknowledge_the_focused_row(page, situation):
    sign_in(page)
    page.goto("/queues/default/standard/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    reference = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("a")
    page.wait_for_selector(".message.success")
    assert reference in page.inner_text("[role=status]")
    assert page.url.endswith("/queues/default/standard/")


def test_single_keys_do_nothing_in_fields_and_can_be_switched_off(page, situation):
    sign_in(page)
    page.goto(f"/disputes/{situation['mine'].pk}/")
    page.keyboard.press("r")
    assert page.evaluate("document.activeElement.id") == "resolve_outcome"
    page.focus("#resolve_reason")
    page.keyboard.type("repairable")
    assert page.input_value("#resolve_reason") == "repairable"
    page.click("[data-keys-help]")
    page.uncheck("[data-keys-switch]")
    page.click("dialog button")
    page.reload()
    page.keyboard.press("u")
    assert page.url.endswith(f"/disputes/{situation['mine'].pk}/")
    assert again(situation["mine"]).version == 2


def test_a_countdown_turns_into_words_when_it_runs_out(page, situation):
    soon = opened(now=database_now() - 2 * HOUR + timedelta(seconds=4), reference="soon")
    sign_in(page)
    page.goto(f"/disputes/{soon.pk}/")
    page.get_by_text("Overdue, escalating").wait_for()


def test_a_wrong_device_clock_is_corrected_and_named(page, situation):
    sign_in(page)
    page.add_init_script("const now = Date.now; Date.now = () => now() - 7 * 60000;")
    page.goto(f"/disputes/{situation['first'].pk}/")
    assert "behind" in page.inner_text("[data-clock-notice]")
    assert "25 min" in page.inner_text(".clock") or "24 min" in page.inner_text(".clock")


def test_the_overview_keeps_up_to_date_until_told_not_to(page, situation):
    sign_in(page)
    waiting = page.locator("tbody tr").first.locator("td").first
    assert waiting.inner_text() == "5"
    opened(now=database_now())
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("tbody tr td a", has_text="6").first.wait_for()
    page.uncheck("[data-live-switch]")
    opened(now=database_now())
    asked = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    # A request made afterwards shows that an earlier one would have been seen by now.
    page.evaluate("fetch('/static/reviewqueue/icon.svg')")
    assert asked == ["icon.svg"]


def test_everything_works_with_scripts_off(browser, live_server, situation):
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)
    page = context.new_page()
    sign_in(page)
    page.click("text=Take next >> nth=0")
    assert "yours until" in page.inner_text("[role=status]")
    page.click("summary:has-text('Resolve')")
    page.select_option("#resolve_outcome", "refunded")
    page.fill("#resolve_reason", "Agreed with the customer.")
    page.click("details[open] button")
    assert "Resolved." in page.inner_text("[role=status]")
    assert "Agreed with the customer." in page.inner_text("main")
    context.close()
