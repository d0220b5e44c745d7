"""The index of the documentation, and the site made from it."""

from tests.docs.blocks import ROOT
from tests.docs.site import listed_pages, llms_text, menu


def test_the_index_lists_every_page_once() -> None:
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    # Pages that a repository host shows to people who report something.
    forms = {page for page in pages if page.startswith("ISSUE_TEMPLATE/")}

    assert sorted(listed_pages()) == sorted(pages - forms - {"index.md"})


def test_each_page_begins_with_what_its_reader_can_do() -> None:
    docs = ROOT / "docs"
    first = {page: (docs / page).read_text().split("\n\n")[1] for page in listed_pages() if "/" not in page}

    assert len(first) > 40
    assert {
        page for page, text in first.items() if not text.startswith(("After this page ", "With this page "))
    } == set()


def test_the_menu_has_a_title_for_each_page_of_each_section() -> None:
    front, *sections = menu()

    assert front == {"taskmq": "index.md"}
    assert [title for section in sections for title in section] == [
        "Learn",
        "Do",
        "Look up",
        "Understand",
        "Take part",
    ]
    titles = [title for section in sections for pages in section.values() for page in pages for title in page]
    assert len(titles) == len(set(titles)) == len(listed_pages())
    assert all(0 < len(title) < 60 for title in titles)


def test_programs_find_a_description_of_taskmq_and_each_page() -> None:
    text = llms_text()

    assert text.startswith("# taskmq\n\n> A task queue and job scheduler")
    assert all(f"]({page})" in text for page in listed_pages())
