"""Generated parts of the API's schemas."""
