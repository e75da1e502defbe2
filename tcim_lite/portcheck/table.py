"""The status of every API call: the one table (spec tcim-api; docs/api-status.md is made from here).

A line is `Python | C++ | status | section of the spec | text`; `-` where a language has no such call. Python names are
those of `tcim_lite.runtime`, or begin with another module; C++ names are in `tcim::`, or are those of a header.

- exact: the contract says what the call does, and it does that.
- chosen: the contract is silent on a point, or the call is known from the vendor's stand-in adapter only; the text says
  what was chosen.
- missing: the vendor has it, the emulator has not; the text says what to do.
- extension: the emulator's alone; a program that uses it does not run on the card as it stands.
"""

from __future__ import annotations

TABLE = """
load | - | exact | 1.2 |
load_model_info | - | chosen | 1.2 | the text is the emulator's own
get_version | GetVersion | exact | 1.2 |
get_device_num | GetDeviceNum | chosen | 1.2 | counts logical devices: the profile, TCIM_LITE_DEVICE_NUM, else 1
from_dlpack | - | extension | - | build a Tensor(info, array) instead
- | GetLastError | extension | - | use the Status of the call

DevManager | DevManager::Create | exact | 2 |
- | DevManager | exact | 2 |
- | DevManager::GetInitStatus | extension | - | test the Status of the load instead
DevManager.device_ids | - | chosen | 2 | known from the adapter only
DevManager.backend_name | - | chosen | 2 | known from the adapter only
DevManager.dev_count | - | chosen | 2 | known from the adapter only
DevManager.verify | - | chosen | 2 | known from the adapter only
WeightManager | Module::WeightManager | exact | 3 |
- | Module::WeightManager::CreateWeightManager | exact | 12.4 |
- | Module::WeightManager::GetInitStatus | exact | 12.4 |
WeightManager.release | - | chosen | 3 | vendor programs call it, the documentation has it not
WeightManager.close | - | chosen | 3 | another name of release
WeightManager.destroy | - | chosen | 3 | another name of release
- | Module::WeightManager::Release | extension | - | drop every reference to the manager and its modules
WeightManager.register_model_group | - | missing | 3 | of the adapter only: load modules with one manager
WeightManager.is_registered | - | missing | 3 | of the adapter, not of the runtime
WeightManager.get_input_names | - | missing | 3 | of the adapter, not of the runtime: Module.get_input_name
WeightManager.create_session | - | missing | 3 | of the adapter, not of the runtime: load(path, option)

Option | Module::Option | chosen | 4 | Option(), Option(int) and Option(DevManager) are accepted beside a WeightManager
Option.set_dummy_tensors | Module::Option::SetDummyTensors | chosen | 4 | unknown names: a warning; after load: nothing
Option.set_model_offset | Module::Option::SetModelOffset | chosen | 4 | any alignment; the card wants that of the format
Option.enable_host_lazy_loading | Module::Option::EnableHostLazyLoading | exact | 4 |
Option.set_taps | - | extension | - | remove it for the card
- | Module::Option::EnableIOLazyMode | chosen | 12.4 | accepted, no effect; what it does on the card is not known
- | Module::Option::RegisterAbortCbFn | exact | 12.4 |
RunOption | Module::RunOption | chosen | 5 | less than one round is refused
RunOption.rounds | - | extension | - | keep the number yourself
- | Module::RunOption::Rounds | exact | 12.4 |
Stream | Stream | chosen | 6 | auto yield has no effect; modules without a stream share one per device
- | kAutoYield | exact | 12.5 |

Module | Module | exact | 7 |
Module.load | - | exact | 7 |
- | Module::LoadFromFile | exact | 12.4 |
- | Module::LoadFromMem | exact | 12.4 |
- | Module::LoadModel | exact | 12.4 |
- | Module::GetInitStatus | exact | 12.4 |
Module.get_num_inputs | Module::GetInputNum | exact | 7.1 |
Module.get_num_outputs | Module::GetOutputNum | exact | 7.1 |
Module.get_input_name | Module::GetInputName | exact | 7.1 |
Module.get_output_name | Module::GetOutputName | exact | 7.1 |
Module.get_input_info | Module::GetInputInfo | exact | 7.1 |
Module.get_output_info | Module::GetOutputInfo | exact | 7.1 |
Module.get_custom_msg | - | chosen | 7.1 | seen in C++ only
Module.get_core_num | - | chosen | 7.1 | seen in C++ only
Module.get_backend_name | - | chosen | 7.1 | seen in C++ only
Module.get_model_version | - | chosen | 7.1 | seen in C++ only
- | Module::GetCustomMsg | exact | 12.4 |
- | Module::GetCoreNum | exact | 12.4 |
- | Module::GetBackendName | exact | 12.4 |
- | Module::GetModelVersion | exact | 12.4 |
Module.set_input | Module::SetInput | chosen | 7.2 | refuses integers that do not fit, tensors of other devices
Module.set_dev_input | Module::SetDevInput | exact | 7.2 |
Module.get_dev_input | Module::GetDevInput | exact | 7.2 |
Module.get_input | Module::GetInput | exact | 7.2 |
Module.get_host_input | - | missing | 7.2 | no known use; get_dev_input(name).to_host()
Module.get_host_output | - | missing | 7.2 | no known use; get_output(name)
Module.run | - | chosen | 7.3 | the second parameter answers to run_option and option
- | Module::Run | exact | 12.4 |
Module.sync | Module::Sync | exact | 7.3 |
Module.set_stream | Module::SetStream | exact | 7.3 |
Module.get_output | Module::GetOutput | chosen | 7.4 | waits for queued runs; zeros before the first run
Module.get_dev_output | Module::GetDevOutput | exact | 7.4 |
Module.set_dev_output | Module::SetDevOutput | exact | 7.4 |
Module.set_output | - | chosen | 7.4 | seen in C++ only
- | Module::SetOutput | exact | 12.4 |
Module.release | - | chosen | 7.5 | known from third-party code; dropping the last reference does the same
Module.close | - | chosen | 7.5 | another name of release
Module.destroy | - | chosen | 7.5 | another name of release
Module.unload | - | chosen | 7.5 | another name of release
Module.taps | - | extension | - | remove it for the card

TensorInfo | - | extension | - | take the info of a module, and astype or ascontiguous of it
- | TensorInfo | exact | 12.6 |
- | TensorInfo::CreateNDInfo | exact | 12.6 |
- | TensorInfo::CreateYUVInfo | chosen | 12.6 | [batch, 3, height, width], as its programs read and print them
TensorInfo.shape | TensorInfo::Shape | exact | 8 |
TensorInfo.dtype | TensorInfo::DataType | exact | 8 |
TensorInfo.format | TensorInfo::Format | exact | 8 |
TensorInfo.ascontiguous | TensorInfo::AsContiguous | chosen | 13.4 | layouts are dense everywhere, so nothing changes
TensorInfo.astype | TensorInfo::AsType | exact | 8 |
TensorInfo.mem_size | - | chosen | 8 | known from the adapter only
TensorInfo.stride | - | chosen | 8 | known from the adapter only
TensorInfo.device | - | chosen | 8 | known from the adapter only
TensorInfo.device_id | - | extension | - | the program knows where it loaded the module
TensorInfo.name | - | chosen | 8 | known from the adapter only
TensorInfo.is_match | - | chosen | 8 | known from the adapter only
TensorInfo.clone | - | chosen | 8 | known from the adapter only
- | TensorInfo::MemSize | exact | 12.6 |
- | TensorInfo::Device | exact | 12.6 |

Tensor | Tensor | chosen | 9 | new memory is zeros; the card's holds anything
- | Tensor::CreateHostTensor | exact | 12.7 |
- | Tensor::CreateDeviceTensor | chosen | 12.7 | new memory is zeros; the card's holds anything
Tensor.info | Tensor::Info | exact | 9 |
Tensor.numpy | - | chosen | 9 | no later run changes the array; works on device tensors
Tensor.to_host | Tensor::ToHost | exact | 9 |
Tensor.astype | Tensor::AsType | exact | 9 |
Tensor.cast | - | exact | 9 |
Tensor.cast_to | Tensor::CastTo | exact | 9 |
Tensor.copy_to | Tensor::CopyTo | exact | 9 |
Tensor.select_roi | Tensor::SelectROI | exact | 9 |
Tensor.clone | Tensor::Clone | exact | 9 |
Tensor.set_zero | - | exact | 9 |
Tensor.shape | - | chosen | 9 | known from the adapter only: info.shape
Tensor.dtype | - | chosen | 9 | known from the adapter only: info.dtype
Tensor.device | - | chosen | 9 | known from the adapter only
Tensor.device_id | - | chosen | 9 | known from the adapter only
Tensor.mem_size | - | chosen | 9 | known from the adapter only
- | Tensor::Data | chosen | 12.7 | of a device tensor: an address that may be read here, and not on the card
- | Tensor::MemSize | exact | 12.7 |
- | Tensor::Buffer | exact | 12.7 |
- | Tensor::Device | exact | 12.7 |
- | Tensor::GetInitStatus | exact | 12.7 |
- | Tensor::SplitYUV | exact | 12.7 |

- | Buffer | exact | 12.8 |
- | Buffer::CreateHostBuffer | exact | 12.8 |
- | Buffer::CreateDeviceBuffer | chosen | 12.8 | type "reserved" is ordinary memory
- | Buffer::Clone | exact | 12.8 |
- | Buffer::CopyFromHost | exact | 12.8 |
- | Buffer::CopyToHost | chosen | 12.8 | the third argument is an offset, 0 by default
- | Buffer::CopyTo | exact | 12.8 |
- | Buffer::MemSet | chosen | 12.8 | arguments are value, size, offset; of the vendor's only MemSet(0, n, 0) is known
- | Buffer::GetSubBuffer | exact | 12.8 |
- | Buffer::Data | exact | 12.8 |
- | Buffer::Size | exact | 12.8 |
- | Buffer::Device | exact | 12.8 |
- | Buffer::GetInitStatus | exact | 12.8 |

Status | Status | chosen | 10 | values other than OK are the emulator's
DataFmt | DataFmt | exact | 12.2 |
Device | Device | exact | 12.2 |
- | DataType | exact | 12.2 |
TcimError | - | chosen | 10 | classes of errors are the emulator's; the vendor's documentation names RuntimeError
ArgumentError | - | chosen | 10 | catch RuntimeError for both runtimes
DeviceError | - | chosen | 10 | catch RuntimeError for both runtimes
HmmFormatError | - | chosen | 10 | catch RuntimeError for both runtimes
ShapeError | - | chosen | 10 | catch RuntimeError for both runtimes
StateError | - | chosen | 10 | catch RuntimeError for both runtimes
UnknownNameError | - | chosen | 10 | catch RuntimeError for both runtimes
UnsupportedError | - | chosen | 10 | catch RuntimeError for both runtimes

dev_ctrl.Status | - | chosen | 10 | values other than OK are the emulator's
dev_ctrl.DvfsMode | dev_ctrl::DvfsMode | chosen | 11 | PERFORMANCE is 0, ON_DEMAND is 1; no effect on speed
dev_ctrl.MemInfo | dev_ctrl::MemInfo | exact | 11 |
dev_ctrl.HalDevice | dev_ctrl::HalDevice | exact | 11 |
dev_ctrl.HalDeviceFactory | dev_ctrl::HalDeviceFactory | exact | 11 |
dev_ctrl.HalDeviceFactory.create | dev_ctrl::HalDeviceFactory::Create | exact | 11 |
dev_ctrl.HalDevice.get_dvfs_mode | dev_ctrl::HalDevice::GetDvfsMode | exact | 11 |
dev_ctrl.HalDevice.set_dvfs_mode | dev_ctrl::HalDevice::SetDvfsMode | chosen | 11 | stored, no effect on speed
dev_ctrl.HalDevice.get_ipu_frequency | dev_ctrl::HalDevice::GetIpuFrequency | chosen | 11 | 1400 MHz, ON_DEMAND idle 700
dev_ctrl.HalDevice.get_mem_info | dev_ctrl::HalDevice::GetMemInfo | chosen | 11 | what this process holds
dev_ctrl.HalDevice.get_ipu_util_rate | dev_ctrl::HalDevice::GetIpuUtilRate | chosen | 11 | of this process
dev_ctrl.HalDevice.ipu_reset | dev_ctrl::HalDevice::IpuReset | chosen | 11 | modules keep their memory and go on working
dev_ctrl.HalDevice.register_pre_reset_callback | dev_ctrl::HalDevice::RegisterPreResetCallback | exact | 11 |
dev_ctrl.HalDevice.register_post_reset_callback | dev_ctrl::HalDevice::RegisterPostResetCallback | exact | 11 |
dev_ctrl.HalDevice.unregister_reset_callback | dev_ctrl::HalDevice::UnregisterResetCallback | exact | 11 |
- | dev_ctrl::ResetCallback | exact | 11 |
- | dev_ctrl::ResetCallbackHandle | exact | 11 |

hmatc.python.get_hm_devices | - | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc.python.smi | - | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc.utils.perf_infomations | - | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc.utils.utils | - | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc | - | missing | 16.2 | only parts of hmatc have stand-ins (docs/devices.md): install the vendor's
pytcim | - | missing | 1.1 | internal to the vendor's runtime: use tcim_lite.runtime
tcim | - | missing | 1.1 | the vendor's compiler: compile with `tcim-lite compile`
tcim_lite.llm | - | extension | - | host library of this project; it drives any runtime with the vendor's API
tcim_lite.layers | - | extension | - | remove it for the card
tcim_lite.faults | - | extension | - | remove it for the card
tcim_lite.replay | - | extension | - | a folder that may be copied beside the program (docs/recording.md)
tcim_lite.console | - | extension | - | Ctrl-C in this project's commands; remove it for the card
tcim_lite.hmm | - | extension | - | reads files of this project only
tcim_lite.models | - | extension | - | the compiler of this project
tcim_lite.errors | - | chosen | 10 | catch RuntimeError for both runtimes
- | ImageOps | missing | 12.9 | xh1 video only: resize and crop on the host
- | hm_sys.h | missing | 12.9 | device management: tcim::dev_ctrl, or `tcim-lite smi --json`
- | hm_vpu_hal.h | missing | 12.9 | the codec: decode on the host
- | hdpl/ | missing | 12.1 | xh1's driver API: use tcim::Module, Tensor and Buffer
"""

# What a call or an attribute returns, as far as the API is concerned: a class, "ndarray", or "tuple".
RESULTS = {
    "load": "Module", "Module.load": "Module", "from_dlpack": "Tensor",
    "Module.get_input_info": "TensorInfo", "Module.get_output_info": "TensorInfo",
    "Module.get_dev_input": "Tensor", "Module.get_input": "Tensor",
    "Module.get_output": "Tensor", "Module.get_dev_output": "Tensor",
    "Tensor.info": "TensorInfo", "Tensor.numpy": "ndarray",
    "Tensor.to_host": "Tensor", "Tensor.astype": "Tensor", "Tensor.cast": "Tensor", "Tensor.select_roi": "Tensor",
    "Tensor.clone": "Tensor",
    "TensorInfo.ascontiguous": "TensorInfo", "TensorInfo.astype": "TensorInfo", "TensorInfo.clone": "TensorInfo",
    "Option.set_dummy_tensors": "Option", "Option.set_model_offset": "Option",
    "Option.enable_host_lazy_loading": "Option", "Option.set_taps": "Option",
    "dev_ctrl.HalDeviceFactory.create": "dev_ctrl.HalDevice",
}  # fmt: skip
