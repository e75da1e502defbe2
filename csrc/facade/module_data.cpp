// Module: inputs and outputs.
#include <utility>

#include "facade/access.h"
#include "facade/report.h"

namespace tcim {

using namespace internal;

tcim::Status Module::SetInput(const std::string& name, const Tensor& tensor) {
  return guarded("Module::SetInput",
                 [&] { Access::core(*this).set_input(name, Access::core(tensor, "set_input error: ")); });
}

tcim::Status Module::SetDevInput(const std::string& name, const Tensor& tensor) {
  return guarded("Module::SetDevInput",
                 [&] { Access::core(*this).set_dev_input(name, Access::core(tensor, "set_input error: ")); });
}

Tensor Module::GetInput(const std::string& name) const { return GetDevInput(name); }

Tensor Module::GetDevInput(const std::string& name) const {
  return make_tensor("Module::GetInput", [&] {
    tcim_lite::Tensor input = Access::core(*this).input(name);
    return Access::tensor(std::move(input), Access::port_info(*impl_, true, name));
  });
}

tcim::Status Module::GetInput(const std::string& name, const Tensor& tensor) const {
  return guarded("Module::GetInput", [&] { Access::core(*this).input(name).cast_to(Access::core(tensor)); });
}

tcim::Status Module::SetOutput(const std::string& name, const Tensor& tensor) {
  return guarded("Module::SetOutput",
                 [&] { Access::core(*this).set_output(name, Access::core(tensor, "set_output error: ")); });
}

tcim::Status Module::SetDevOutput(const std::string& name, const Tensor& tensor) {
  return guarded("Module::SetDevOutput",
                 [&] { Access::core(*this).set_dev_output(name, Access::core(tensor, "set_dev_output error: ")); });
}

Tensor Module::GetOutput(const std::string& name) const {
  return make_tensor("Module::GetOutput", [&] { return Access::tensor(Access::core(*this).output(name)); });
}

tcim::Status Module::GetOutput(const std::string& name, const Tensor& tensor) const {
  return guarded("Module::GetOutput", [&] { Access::core(*this).output_to(name, Access::core(tensor)); });
}

Tensor Module::GetDevOutput(const std::string& name) const {
  return make_tensor("Module::GetDevOutput", [&] {
    tcim_lite::Tensor output = Access::core(*this).dev_output(name);
    return Access::tensor(std::move(output), Access::port_info(*impl_, false, name));
  });
}

}  // namespace tcim
