"""Reading what a trained net does: numbers first."""

from highway_keras.analysis.gate_values import GateModel as GateModel
from highway_keras.analysis.gate_values import gates as gates
from highway_keras.analysis.gate_values import mean_gates as mean_gates
