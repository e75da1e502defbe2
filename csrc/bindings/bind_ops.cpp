#include <string>

#include "bindings/bindings.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite {
namespace {

py::list op_table() {
  py::list table;
  for (size_t index = 0; index < num_ops(); ++index) {
    const OpKind kind{uint8_t(index)};
    const OpDefinition& definition = definition_of(kind);
    py::dict row;
    row["name"] = std::string(name_of(kind));
    row["version"] = version_of(kind);
    row["signature"] = std::string(definition.signature);
    row["meaning"] = std::string(definition.meaning);
    row["cut"] = std::string(name_of(definition.cut));
    row["updates_state"] = definition.states != nullptr;
    row["carried"] = definition.carried == kNoOperand ? py::object(py::none()) : py::int_(definition.carried);
    table.append(row);
  }
  return table;
}

}  // namespace

void bind_ops(py::module_& m) {
  m.def("op_table", &op_table, "The rows of graph/ops.def in order; for docs and tests.");
}

}  // namespace tcim_lite
