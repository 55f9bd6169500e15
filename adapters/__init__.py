"""Backends, one folder each; ``metaclient`` finds them by entry point (``metaclient.backends``) and imports none.

An adapter does a thing at the place it is given: read meta at this meta replica, get this row at that region replica.
It never chooses the place and never retries; that is the client's work, done once for all of them. What an adapter
cannot do, its ``Capabilities`` say.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())
