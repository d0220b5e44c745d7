"""Commands about host nodes."""
