"""Users, tenants, roles, sessions and tokens, handled by administrators and users in a real browser."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.kit import PASSWORD, Eyes, Served, serving, violations, watching

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An app with a sign-in; the tests of this module share it."""
    folder: Path = tmp_path_factory.mktemp("site")
    with serving(folder) as served:
        yield served


def _sign_in(eyes: Eyes, name: str) -> None:
    # The server refuses calls before the sign-in, and the browser logs that to its console.
    eyes.forgiven.append("401")
    eyes.open()
    eyes.page.get_by_label("Name").fill(name)
    eyes.page.get_by_label("Password").fill(PASSWORD)
    eyes.click("Sign in")
    expect(eyes.page.get_by_role("button", name="Sign out")).to_be_visible()


def _age_sessions(site: Served) -> None:
    """Move the start of all sessions five minutes into the past."""
    path = (site.app.sessions.store_url or "").removeprefix("sqlite:///").partition("?")[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update session set created = created - 300000")


def _add_user(eyes: Eyes, name: str, tenant: str, role: str) -> None:
    eyes.open("users")
    eyes.click("Add a user")
    form = eyes.page.get_by_role("dialog")
    form.get_by_label("Name").fill(name)
    form.get_by_label("Password").fill(PASSWORD)
    form.get_by_label("Tenant").fill(tenant)
    form.get_by_label("Role").select_option(role)
    eyes.click("Add")
    expect(eyes.page.get_by_label("Users", exact=True).get_by_role("link", name=name)).to_be_visible()


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_user_is_added_signs_in_creates_a_token_and_is_disabled(browser: Browser, site: Served) -> None:
    with watching(browser, site) as admin, watching(browser, site) as nora:
        _sign_in(admin, "root")
        _add_user(admin, "nora", "acme", "submitter")
        _sign_in(nora, "nora")
        nora.open("account")
        nora.click("Create a token")
        nora.page.get_by_label("Name", exact=True).fill("laptop")
        nora.page.get_by_label("Scopes").fill("jobs.read account.read")
        nora.page.get_by_label("Expires").fill("2099-01-31T09:00")
        nora.click("Create")
        secret = nora.page.get_by_label("Token", exact=True).inner_text()
        nora.click("Close")
        expect(nora.page.get_by_label("Tokens")).to_contain_text("jobs.read")
        assert secret not in nora.page.content()
        bearer = {"Authorization": f"Bearer {secret}"}
        assert httpx.get(f"{site.url}/api/v1/jobs", headers=bearer).status_code == 200
        assert httpx.get(f"{site.url}/api/v1/tasks", headers=bearer).status_code == 403

        page = admin.page
        admin.click("nora")
        expect(page.get_by_label("Roles", exact=True)).to_contain_text("submitter")
        expect(page.get_by_label("Sessions")).to_contain_text("127.0.0.1")
        assert violations(page) == []
        page.get_by_label("Tokens").get_by_role("button", name="Revoke").click()
        admin.see("No tokens. Users create their own")
        assert httpx.get(f"{site.url}/api/v1/jobs", headers=bearer).status_code == 401
        page.get_by_label("Sessions").get_by_role("button", name="End").click()
        admin.see("No active sessions.")
        nora.page.keyboard.press(".")
        expect(nora.page.get_by_label("Password")).to_be_visible()

        admin.click("Erase")
        page.get_by_label("Type nora to confirm").fill("nora")
        admin.click("Erase permanently")
        expect(page.locator("h1").first).to_have_text("Users")
        admin.see_count(page.get_by_role("link", name="nora"), 0)


@pytest.mark.campaign
def test_a_token_requires_the_password_and_a_new_password_revokes_it(browser: Browser, site: Served) -> None:
    with watching(browser, site) as admin, watching(browser, site) as otto:
        _sign_in(admin, "root")
        _add_user(admin, "otto", "acme", "submitter")
        _sign_in(otto, "otto")
        _age_sessions(site)
        otto.forgiven += ["403", "400"]
        page = otto.open("account").page
        otto.click("Create a token")
        page.get_by_label("Name", exact=True).fill("laptop")
        expect(page.get_by_label("Your password")).to_have_count(0)
        otto.click("Create")
        otto.see("more than five minutes ago")
        page.get_by_label("Your password").fill("wrong password")
        otto.click("Create")
        otto.see("the current password is wrong")
        page.get_by_label("Your password").fill(PASSWORD)
        assert violations(page) == []
        otto.click("Create")
        bearer = {"Authorization": f"Bearer {page.get_by_label('Token', exact=True).inner_text()}"}
        otto.click("Close")
        assert httpx.get(f"{site.url}/api/v1/jobs", headers=bearer).status_code == 200

        otto.click("Change password")
        page.get_by_label("Current password").fill(PASSWORD)
        page.get_by_label("New password").fill("seven green bicycles")
        page.get_by_label("Also revoke all my tokens").check()
        otto.click("Change")
        otto.see("1 revoked, 0 still valid")
        otto.see("No tokens. Programs authenticate with one")
        assert httpx.get(f"{site.url}/api/v1/jobs", headers=bearer).status_code == 401


@pytest.mark.campaign
def test_an_admin_resets_a_password_and_keeps_or_revokes_the_tokens(browser: Browser, site: Served) -> None:
    with watching(browser, site) as admin, watching(browser, site) as pia:
        _sign_in(admin, "root")
        _add_user(admin, "pia", "acme", "submitter")
        _sign_in(pia, "pia")
        pia.open("account")
        pia.click("Create a token")
        pia.page.get_by_label("Name", exact=True).fill("laptop")
        pia.click("Create")
        pia.click("Close")
        page = admin.page
        admin.click("pia")
        for keep, said in ((True, "0 revoked, 1 still valid"), (False, "1 revoked, 0 still valid")):
            page.get_by_role("button", name="Change", exact=True).click()
            form = page.get_by_role("dialog")
            form.get_by_label("New password").fill("seven green bicycles")
            form.get_by_label("Keep their tokens valid").set_checked(keep)
            form.get_by_role("button", name="Change").click()
            admin.see(said)


@pytest.mark.campaign
def test_tenants_are_added_described_disabled_and_removed(browser: Browser, site: Served) -> None:
    with watching(browser, site) as eyes:
        _sign_in(eyes, "root")
        page = eyes.open("users").page
        eyes.click("Add a tenant")
        page.get_by_label("Name", exact=True).fill("globex")
        eyes.click("Add")
        row = page.get_by_label("Tenants", exact=True).get_by_role("row", name="globex")

        row.get_by_role("button", name="Describe").click()
        page.get_by_label("Description").fill("Globex Ltd")
        eyes.click("Save")
        expect(row).to_contain_text("Globex Ltd")
        row.get_by_role("button", name="Disable").click()
        expect(row).to_contain_text("disabled")
        row.get_by_role("button", name="Remove").click()
        page.get_by_label("Type globex to confirm").fill("globex")
        eyes.confirm("Remove")

        eyes.see_count(row, 0)


@pytest.mark.campaign
def test_an_admin_of_a_tenant_grants_and_revokes_roles_only_there(browser: Browser, site: Served) -> None:
    with watching(browser, site) as admin, watching(browser, site) as eyes:
        _sign_in(admin, "root")
        _add_user(admin, "amos", "acme", "admin")
        _sign_in(eyes, "amos")
        page = eyes.open("users").page
        members = page.get_by_label("Members")

        expect(members.get_by_role("row", name="vera")).to_contain_text("viewer")
        eyes.see_count(page.get_by_label("Users", exact=True), 0)
        eyes.see_count(members.get_by_role("row", name="root"), 0)
        eyes.click("Give a role in a tenant")
        form = page.get_by_role("dialog")
        form.get_by_label("User", exact=True).fill("vera")
        form.get_by_label("Role").select_option("submitter")
        form.get_by_label("Tasks").fill("report billing.*")
        assert violations(page) == []
        eyes.click("Give")
        expect(members.get_by_role("row", name="vera")).to_contain_text("report, billing.*")
        members.get_by_role("row", name="vera").get_by_role("button", name="Remove").click()

        eyes.see_count(members.get_by_role("row", name="vera"), 0)


_SENT = {
    "a form of text": """<form id=f method=post enctype=text/plain action="{url}/api/v1/auth/login">
        <input name='{{"username":"mallory","password":"' value='{password}"}}'></form><script>f.submit()</script>""",
    "a form": """<form id=f method=post action="{url}/api/v1/auth/login"><input name=username value=mallory>
        <input name=password value="{password}"></form><script>f.submit()</script>""",
    "a form of parts": """<form id=f method=post enctype=multipart/form-data action="{url}/api/v1/auth/login">
        <input name=username value=mallory><input name=password value="{password}"></form>
        <script>f.submit()</script>""",
}


@pytest.mark.campaign
@pytest.mark.parametrize("way", _SENT)
def test_a_page_of_another_site_does_not_sign_the_user_in_to_another_account(
    browser: Browser, site: Served, way: str
) -> None:
    with watching(browser, site) as root:
        _sign_in(root, "root")
        bearer = {"Authorization": f"Bearer {_token_of(site, 'root')}"}
        user = {"name": "mallory", "password": PASSWORD, "memberships": []}
        assert site.api.post("/users", json=user, headers=bearer).status_code in {201, 409}
        before = {cookie["name"]: cookie["value"] for cookie in root.page.context.cookies(site.url)}

        page = root.page.context.new_page()
        html = _SENT[way].format(url=site.url, password=PASSWORD)
        page.route("http://evil.test/", lambda route: route.fulfill(body=html, content_type="text/html"))
        with page.expect_response(lambda answer: answer.url.endswith("/auth/login")) as answered:
            page.goto("http://evil.test/")

        assert answered.value.status == 415
        assert {cookie["name"]: cookie["value"] for cookie in root.page.context.cookies(site.url)} == before
        page.close()


def _token_of(site: Served, name: str) -> str:
    begun = site.api.post("/auth/login", json={"username": name, "password": PASSWORD}).json()
    site.api.cookies.clear()
    return str(begun["token"])
