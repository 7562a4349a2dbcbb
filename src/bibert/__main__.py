"""`python -m bibert`, the same program as the script `bibert`."""

from bibert.cli import main

if __name__ == "__main__":
    main()
