"""The door for plain HTTP: records in and out of topics with `curl`, a webhook, a browser's fetch, a shell script."""
