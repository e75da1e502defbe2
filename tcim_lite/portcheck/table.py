"""Statuses of what has no mark (`tcim_lite.marks`): names of C++ alone, whole Python modules, and what is missing.

A line is `name | status | section of the contract | text`. Python names are those of `tcim_lite.runtime`, or begin with
another module; C++ names are in `tcim::`, or are those of a header. Statuses are those of the marks, and "missing": the
vendor has it, the emulator has not; the text says what to do.
"""

PYTHON = """
WeightManager.register_model_group | missing | 3 | of the adapter only: load modules with one manager
WeightManager.is_registered | missing | 3 | of the adapter, not of the runtime
WeightManager.get_input_names | missing | 3 | of the adapter, not of the runtime: Module.get_input_name
WeightManager.create_session | missing | 3 | of the adapter, not of the runtime: load(path, option)
Module.get_host_input | missing | 7.2 | no known use; get_dev_input(name).to_host()
Module.get_host_output | missing | 7.2 | no known use; get_output(name)
hmatc.python.get_hm_devices | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc.python.smi | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc.utils.logger | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc.utils.perf_infomations | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc.utils.utils | chosen | 16.3 | a stand-in; a real hmatc on the path takes precedence
hmatc | missing | 16.2 | only parts of hmatc have stand-ins (docs/devices.md): install the vendor's
pytcim | missing | 1.1 | internal to the vendor's runtime: use tcim_lite.runtime
tcim | missing | 1.1 | the vendor's compiler: compile with `tcim-lite compile`
tcim_lite.llm | extension | - | host library of this project; it drives any runtime with the vendor's API
tcim_lite.layers | extension | - | remove it for the card
tcim_lite.faults | extension | - | remove it for the card
tcim_lite.replay | extension | - | a folder that may be copied beside the program (docs/recording.md)
tcim_lite.console | extension | - | Ctrl-C in this project's commands; remove it for the card
tcim_lite.hmm | extension | - | reads files of this project only
tcim_lite.models | extension | - | the compiler of this project
tcim_lite.errors | chosen | 10 | catch RuntimeError for both runtimes
"""

_IMAGE_RUNNERS = ("ImageRunner", "Resizer", "ColorConverter")
_OF_AN_IMAGE_RUNNER = (
    "SetStream | exact | 12.9 |",
    "GetStream | exact | 12.9 |",
    "Sync | exact | 12.9 |",
    "GetInputNum | exact | 12.9 |",
    "GetOutputNum | exact | 12.9 |",
    "GetInputTensor | chosen | 12.9 | of the last run",
    "GetOutputTensor | chosen | 12.9 | of the last run",
)

CPP = """
GetLastError | extension | - | use the Status of the call

DevManager | exact | 2 |
DevManager::GetInitStatus | extension | - | test the Status of the load instead
Module::WeightManager::CreateWeightManager | exact | 12.4 |
Module::WeightManager::GetInitStatus | exact | 12.4 |
Module::WeightManager::Release | extension | - | drop every reference to the manager and its modules

Module::Option::EnableIOLazyMode | chosen | 12.4 | accepted, no effect; what it does on the card is not known
Module::Option::EnableLazyMode | chosen | 12.4 | accepted, no effect; in older programs of the vendor only
Module::Option::RegisterAbortCbFn | exact | 12.4 |
Module::RunOption::Rounds | exact | 12.4 |
kAutoYield | exact | 12.5 |

Module::LoadFromFile | exact | 12.4 |
Module::LoadFromMem | exact | 12.4 |
Module::LoadModel | exact | 12.4 |
Module::GetInitStatus | exact | 12.4 |
Module::GetCustomMsg | exact | 12.4 |
Module::GetCoreNum | exact | 12.4 |
Module::GetBackendName | exact | 12.4 |
Module::GetModelVersion | exact | 12.4 |
Module::GetInput | exact | 7.2 |
Module::Run | exact | 12.4 |
Module::SetOutput | exact | 12.4 |

TensorInfo | exact | 12.6 |
TensorInfo::CreateNDInfo | exact | 12.6 |
TensorInfo::CreateYUVInfo | chosen | 12.6 | [batch, 3, height, width], as its programs read and print them
TensorInfo::MemSize | exact | 12.6 |
TensorInfo::DataTypeSize | exact | 12.6 |
TensorInfo::Device | exact | 12.6 |

Tensor::CreateHostTensor | exact | 12.7 |
Tensor::CreateDeviceTensor | chosen | 12.7 | new memory is zeros; the card's holds anything
Tensor::Data | chosen | 12.7 | of a device tensor: an address that may be read here, and not on the card
Tensor::MemSize | exact | 12.7 |
Tensor::Buffer | exact | 12.7 |
Tensor::Device | exact | 12.7 |
Tensor::GetInitStatus | exact | 12.7 |
Tensor::SplitYUV | exact | 12.7 |

Buffer | exact | 12.8 |
Buffer::CreateHostBuffer | exact | 12.8 |
Buffer::CreateDeviceBuffer | chosen | 12.8 | type "reserved" is ordinary memory
Buffer::Clone | exact | 12.8 |
Buffer::CopyFromHost | exact | 12.8 |
Buffer::CopyToHost | chosen | 12.8 | the third argument is an offset, 0 by default
Buffer::CopyTo | chosen | 12.8 | a second argument says how many bytes, as in a program for an earlier chip
Buffer::MemSet | chosen | 12.8 | arguments are value, size, offset; of the vendor's only MemSet(0, n, 0) is known
Buffer::GetSubBuffer | exact | 12.8 |
Buffer::Data | exact | 12.8 |
Buffer::Size | exact | 12.8 |
Buffer::Device | exact | 12.8 |
Buffer::GetInitStatus | exact | 12.8 |

DataType | exact | 12.2 |

dev_ctrl::ResetCallback | exact | 11 |
dev_ctrl::ResetCallbackHandle | exact | 11 |

ImageOps::Config | exact | 12.9 |
ImageOps::Config::Global | exact | 12.9 |
ImageOps::Config::SetDirPath | chosen | 12.9 | kept; the emulator needs no data files
ImageOps::Config::SetEnvName | chosen | 12.9 | kept; the emulator needs no data files
ImageOps::Config::GetDirPath | chosen | 12.9 | what was set, else the value of the environment variable
ImageOps::RectPad | exact | 12.9 |
ImageOps::RectRoi | exact | 12.9 |
ImageOps::ImageRunner | exact | 12.9 |
ImageOps::Resizer | exact | 12.9 |
ImageOps::Resizer::Option | exact | 12.9 |
ImageOps::Resizer::Option::SetMaxSize | exact | 12.9 |
ImageOps::Resizer::EnInterpMode | exact | 12.9 |
ImageOps::Resizer::EnAlignMode | exact | 12.9 |
ImageOps::Resizer::RunOption | exact | 12.9 |
ImageOps::Resizer::RunOption::SetCrop | exact | 12.9 |
ImageOps::Resizer::RunOption::SetPad | exact | 12.9 |
ImageOps::Resizer::RunOption::SetPadVal | exact | 12.9 |
ImageOps::Resizer::Init | exact | 12.9 |
ImageOps::Resizer::Run | chosen | 12.9 | works at once; places and roundings are a guess
ImageOps::ColorConverter | exact | 12.9 |
ImageOps::ColorConverter::Option | exact | 12.9 |
ImageOps::ColorConverter::Option::SetMaxSize | exact | 12.9 |
ImageOps::ColorConverter::Init | exact | 12.9 |
ImageOps::ColorConverter::Run | chosen | 12.9 | works at once; BT.601 from 0 to 255, a guess

tcim_c_api.h | chosen | 12.9 | the runtime in C: what its calls do is known, what mistakes do is not (docs/cpp.md)
hm_sys.h | chosen | 12.9 | state and clocks of the emulated devices; what only a chip has fails (docs/cpp.md)
hm_vpu_hal.h | missing | 12.9 | the codec: decode on the host
hm_jpeg_hal.h | missing | 12.9 | the codec: decode on the host
hdpl/ | missing | 12.1 | xh1's driver API: use tcim::Module, Tensor and Buffer
""" + "".join(f"ImageOps::{kind}::{member}\n" for kind in _IMAGE_RUNNERS for member in _OF_AN_IMAGE_RUNNER)
