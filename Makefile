PY := .venv/bin/python
proto:
	$(PY) tools/generate_stubs.py
