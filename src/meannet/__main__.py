import os

from meannet.cli import main

code = main()
if os.environ.get("WORLD_SIZE", "1") != "1":  # as torchrun sets it
    from meannet.ranks import leave

    leave(code)
raise SystemExit(code)
