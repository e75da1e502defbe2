"""What all of the compiler shares: keys of configs, rotary tables, profiles, the folder of a package, errors."""
