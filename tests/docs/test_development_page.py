"""The settings in docs/development.md match the servers in tests/compose.yml."""

import re
from urllib.parse import urlsplit

import yaml

from taskmq.testing.containers import PostgresContainer, RabbitMQContainer, RedisContainer
from tests.docs.blocks import ROOT


def test_the_urls_on_the_page_are_those_of_the_servers_in_compose() -> None:
    services = yaml.safe_load((ROOT / "tests" / "compose.yml").read_text())["services"]
    page = (ROOT / "docs" / "development.md").read_text()
    urls = dict(re.findall(r"^\$ export TASKMQ_TEST_(\w+)_URL=(\S+)$", page, re.MULTILINE))

    ports = {name: service["ports"][0] for name, service in services.items()}
    assert {name: f"127.0.0.1:{urlsplit(url).port}" for name, url in urls.items()} == {
        name: ports[service].rpartition(":")[0]
        for name, service in {"AMQP": "rabbitmq", "REDIS": "redis", "POSTGRES": "postgres"}.items()
    }
    assert urlsplit(urls["POSTGRES"]).password == services["postgres"]["environment"]["POSTGRES_PASSWORD"]


def test_compose_starts_the_same_images_as_user_tests() -> None:
    services = yaml.safe_load((ROOT / "tests" / "compose.yml").read_text())["services"]

    assert {name: service["image"] for name, service in services.items()} == {
        "rabbitmq": RabbitMQContainer().image,
        "redis": RedisContainer().image,
        "postgres": PostgresContainer().image,
    }
