"""Analysis of trained nets: gates, statistics, lesions, routing, gradients.

`highway_keras.analysis.plots` draws the results and needs Matplotlib.
"""

from highway_keras.analysis.batches import in_batches as in_batches
from highway_keras.analysis.elimination import Elimination as Elimination
from highway_keras.analysis.elimination import lesion_greedily as lesion_greedily
from highway_keras.analysis.gate_values import GateModel as GateModel
from highway_keras.analysis.gate_values import gates as gates
from highway_keras.analysis.gate_values import layer_outputs as layer_outputs
from highway_keras.analysis.gate_values import mean_gates as mean_gates
from highway_keras.analysis.gradients import Jacobian as Jacobian
from highway_keras.analysis.gradients import gradient_norms as gradient_norms
from highway_keras.analysis.gradients import jacobian as jacobian
from highway_keras.analysis.layout import Layout as Layout
from highway_keras.analysis.layout import highway_layers as highway_layers
from highway_keras.analysis.lesions import Lesions as Lesions
from highway_keras.analysis.lesions import effective_depth as effective_depth
from highway_keras.analysis.lesions import lesion_layers as lesion_layers
from highway_keras.analysis.lesions import lesion_sets as lesion_sets
from highway_keras.analysis.lesions import lesion_units as lesion_units
from highway_keras.analysis.routing import explained_by_class as explained_by_class
from highway_keras.analysis.routing import signatures as signatures
from highway_keras.analysis.scores import classification as classification
from highway_keras.analysis.scores import probabilities as probabilities
from highway_keras.analysis.scores import regression as regression
from highway_keras.analysis.statistics import GateStatistics as GateStatistics
from highway_keras.analysis.statistics import gate_statistics as gate_statistics
from highway_keras.analysis.statistics import open_layers as open_layers
