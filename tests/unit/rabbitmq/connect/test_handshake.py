from taskmq_rabbitmq.connect.handshake import client_properties, connection_name


def test_a_connection_is_named_after_its_process_and_role() -> None:
    assert connection_name("shop", "publish", host="web-3", pid=7) == "taskmq shop web-3:7 publish"
    assert connection_name("taskmq", "publish", host="web-3", pid=7) == "taskmq web-3:7 publish"


def test_nothing_is_repeated() -> None:
    worker = "worker shop:app web-3:7"

    assert connection_name(worker, "consume", host="web-3", pid=7) == "taskmq worker shop:app web-3:7 consume"
    assert connection_name("taskmq cli", "publish", host="h", pid=1) == "taskmq cli h:1 publish"


def test_product_version_and_platform_are_reported() -> None:
    properties = client_properties("shop", "publish")

    assert properties["product"] == "taskmq"
    assert properties["version"]
    assert "Python" in properties["platform"]
    assert "pid" in properties["information"]
