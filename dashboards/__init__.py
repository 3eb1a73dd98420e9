"""Dashboards as code: what is on them (`panels`), how it becomes Grafana's JSON (`build`), rules and provisioning."""
