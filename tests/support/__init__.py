"""Code that several tests share; import it as `from tests.support.<module> import <name>`."""
