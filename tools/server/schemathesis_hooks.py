"""How schemathesis writes bodies of types that it does not know (see `check`)."""

import schemathesis


def as_bytes(context, value):
    return value if isinstance(value, bytes) else str(value).encode()


schemathesis.serializer("application/x-ndjson")(as_bytes)
schemathesis.serializer("application/x-esker-rows")(as_bytes)
