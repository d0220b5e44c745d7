"""Encoding of values as JSON or MessagePack, and checks that they survive it. Pure.

wire_form       encoding and decoding of a value        objects        fields of objects, pydantic's models
difference      what encoding would lose                annotations    types in a function's signature
canonical_form  the same bytes in every process
"""
