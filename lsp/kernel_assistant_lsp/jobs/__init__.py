"""The jobs that an editor follows, as they are shown. Knows neither server nor client."""
