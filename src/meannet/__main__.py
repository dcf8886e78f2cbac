from meannet.cli import main

raise SystemExit(main())
