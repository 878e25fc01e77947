"""The course's pictures. Each function draws one, displays it and returns nothing.

Every picture comes with alt text and a table, both made from the data that was drawn; in a script
the alt text is printed instead. Colours are those of Okabe and Ito, which colour-blind readers tell
apart, and no meaning rests on colour alone: markers and line styles differ as well.
"""

from .charts import bars, depth_plot, heat_map, line_chart
from .comparison import ratio_strip
from .graph import draw_graph
from .layout import strides
from .limits import roofline, throughput_curve
from .memory import memory_timeline

__all__ = [
    "bars",
    "depth_plot",
    "draw_graph",
    "heat_map",
    "line_chart",
    "memory_timeline",
    "ratio_strip",
    "roofline",
    "strides",
    "throughput_curve",
]
