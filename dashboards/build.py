"""`python -m dashboards.build` writes Grafana's JSON of every dashboard into dashboards/grafana/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import DASHBOARDS, Dashboard, Panel

BUILT = Path(__file__).parent / "grafana" / "dashboards"
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_WINDOWS = ("10m", "30m", "1h", "3h", "12h")
_LABELS = {"run": "Run", "method": "Method", "twin": "Fault-free twin", "seed": "Seed", "agent": "Agent"}
_PALETTE = models.FieldColorModeId.PALETTE_CLASSIC


def build(d: Dashboard) -> str:
    """One dashboard as Grafana reads it."""
    made = (
        builders.Dashboard(d.title)
        .uid(d.uid)
        .description(d.text)
        .tags(["meshheal"])
        .readonly()
        .time("now-6h", "now")
        .refresh("30s")
        .timezone("utc")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(builders.DashboardLink("MeshHeal").type(models.DashboardLinkType.DASHBOARDS).tags(["meshheal"])
              .as_dropdown(True).include_vars(True).keep_time(True))
    )  # fmt: skip
    for variable in _variables(d):
        made = made.with_variable(variable)
    number = 0
    for title, row in d.rows:
        made = made.with_row(builders.Row(title))
        for panel in row:
            number += 1
            made = made.with_panel(_panel(panel).id(number))
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _variables(d: Dashboard) -> Iterator[Any]:
    yield builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    for name in d.variables:
        if name == "window":
            options = [models.VariableOption(text=w, value=w, selected=w == "30m") for w in _WINDOWS]
            yield (
                builders.CustomVariable("window").label("Window").values(",".join(_WINDOWS)).options(options)
                .current(options[_WINDOWS.index("30m")])
            )  # fmt: skip
            continue
        metric = "meshheal_agent_degraded" if name == "agent" else "meshheal_run_info"
        twin = name == "twin"
        yield (
            builders.QueryVariable(name)
            .label(_LABELS[name])
            .datasource(_SOURCE)
            .query(f"label_values({metric}, {name})")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(
                models.VariableSort.NUMERICAL_ASC if name in ("seed", "agent") else models.VariableSort.ALPHABETICAL_ASC
            )
            .multi(True)
            .include_all(True)
            .current(
                models.VariableOption(
                    selected=True, text="false" if twin else "All", value="false" if twin else "$__all"
                )
            )
        )


def _panel(p: Panel) -> Any:
    made: Any
    match p.kind:
        case "stat":
            made = _stat()
        case "table":
            made = table.Panel().with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        case "heatmap":
            made = heatmap.Panel().calculate(False)
        case _:
            made = _series(p)
    made = made.title(p.title).description(p.text).datasource(_SOURCE).height(8).span(p.width).unit(p.unit)
    for query in p.queries:
        form = {"heatmap": PromQueryFormat.HEATMAP, "table": PromQueryFormat.TABLE}.get(
            p.kind, PromQueryFormat.TIME_SERIES
        )
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto").format(form)
        ref = chr(ord("A") + p.queries.index(query))
        target = target.ref_id(ref)
        made = made.with_target(target.instant() if query.instant else target.range())
    return made


def _stat() -> Any:
    last = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
    plain = builders.FieldColor().mode(_PALETTE)
    return stat.Panel().reduce_options(last).graph_mode(common.BigValueGraphMode.NONE).color_scheme(plain)


def _series(p: Panel) -> Any:
    made = (
        timeseries.Panel().color_scheme(builders.FieldColor().mode(_PALETTE)).show_points(common.VisibilityMode.NEVER)
    )
    made = made.legend(
        common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM).show_legend(True)
    ).tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))  # fmt: skip
    if p.kind == "steps":
        made = made.line_interpolation(common.LineInterpolation.STEP_AFTER)
    if p.kind == "bars":
        made = made.fill_opacity(40).stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if p.log:
        log = common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10)
        made = made.scale_distribution(log)
    return made.min(0) if not p.log else made


def write() -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    for d in DASHBOARDS:
        (BUILT / f"{d.uid}.json").write_text(build(d))


if __name__ == "__main__":
    write()
