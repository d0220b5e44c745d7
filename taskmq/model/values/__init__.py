"""Values on their way: as JSON or MessagePack, and whether what arrives is what was sent. Pure.

wire_form       a value as bytes, and back            objects        what they consist of, pydantic's models
difference      what would be lost on the way         annotations    what a function says of its types
canonical_form  the same bytes in every process
"""
