"""`python -m meannet.kept README.md docs/paper-map.md …`, as in `make kept`: pages brought up to date."""

import sys

from meannet.kept.pages import main

raise SystemExit(main(sys.argv[1:]))
