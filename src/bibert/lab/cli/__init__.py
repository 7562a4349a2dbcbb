"""The commands of the laboratory: analyze, bench, card, inspect, quickstart, reproduce, schemes."""
