"""The command line's answer to users without permission."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.kit import Here


@pytest.mark.rabbitmq
@pytest.mark.parametrize(
    "tokens", ["send shop.double --args [3]", "queue list", "dlq list images"], ids=lambda text: str(text).split()[0]
)
def test_a_refused_user_is_exit_code_4_without_the_password(
    taskmq: Here, shop: Path, amqp_url: str, monkeypatch: pytest.MonkeyPatch, tokens: str
) -> None:
    port = urlsplit(amqp_url).port
    monkeypatch.setenv("TASKMQ_URL", f"amqp://guest:S3CRET@127.0.0.1:{port}/")
    monkeypatch.setenv("TASKMQ_APP", "shop:app")

    result = taskmq(*tokens.split())

    assert result.code == 4
    assert "ACCESS_REFUSED" in result.err
    assert "S3CRET" not in result.err + result.out
