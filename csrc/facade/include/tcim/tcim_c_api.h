/* The vendor's runtime API in C, on the tcim_lite emulator: libtcim_runtime_c_api.so. C99 and C++.
 *
 * Programs open the library themselves and look each call up under its name with _impl behind it, into a table of
 * their own. Others link the library, and call these functions, or tcim_load_library for the same table.
 *
 * Each call is a member of tcim/tcim_runtime.h, where it is described. Which one is known; what becomes of mistakes is
 * not, and is a choice of ours:
 * - A call that fails returns a status other than TCIM_OK, NULL or 0. One line says why (standard error,
 *   TCIM_LITE_LOG), and tcim_get_last_error returns it.
 * - A handle that is NULL, was destroyed, or is of another kind fails with TCIM_INVALID_ARGUMENT.
 * - Each handle that a call returns is the caller's to destroy, in any order: what it stands for lives as long as
 *   others need it. To destroy NULL does nothing; a handle that was destroyed is reported, and nothing else happens.
 * - Threads may call any function at once; if two change one object (an option, the model of a module), lock it.
 */
#ifndef TCIM_C_API_H /* as in the vendor's, so that a program gets one of the two */
#define TCIM_C_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define TCIM_C_API_INT : int /* so that a number that is none of them may be passed, and is refused */
extern "C" {
#else
#define TCIM_C_API_INT
#endif

typedef struct tcim_dev_manager* tcim_dev_manager_t;
typedef struct tcim_weight_manager* tcim_weight_manager_t;
typedef struct tcim_module_option* tcim_module_option_t;
typedef struct tcim_module* tcim_module_t;
typedef struct tcim_tensor* tcim_tensor_t;
typedef struct tcim_tensor_info* tcim_tensor_info_t;
typedef struct tcim_buffer* tcim_buffer_t;

/* True ends the load. */
typedef bool (*tcim_abort_callback_fn)(void* user_data);

/* TCIM_OUT_OF_RANGE and TCIM_INVALID_ARGUMENT have each other's number in tcim::Status. */
typedef enum TCIM_C_API_INT {
  TCIM_OK = 0,
  TCIM_ERR_UNDEFINED = -1, /* what has no value of its own: bad files, full or missing devices, aborted loads */
  TCIM_UNINITIALIZED = 1,  /* a module without a model, a dummy input without memory */
  TCIM_OUT_OF_RANGE = 2,
  TCIM_UNSUPPORTED = 3,
  TCIM_INVALID_ARGUMENT = 4, /* a bad handle, an unknown name, a size, dtype or value that does not fit */
  TCIM_ALREADY_EXISTS = 5,
  TCIM_PERMISSION_DENIED = 6,
  TCIM_UNAVAILABLE = 7,
  TCIM_UNAUTHENTICATED = 8,
  TCIM_RESOURCE_EXHAUSTED = 9,
  TCIM_TIMEOUT = 10,
  TCIM_ERR_KERNEL = 11,
  TCIM_ERR_FATAL = 12
} tcim_status_t;

/* The numbers of tcim::DataType. */
typedef enum TCIM_C_API_INT {
  TCIM_INT8 = 0,
  TCIM_UINT8 = 1,
  TCIM_INT16 = 2,
  TCIM_UINT16 = 3,
  TCIM_INT32 = 4,
  TCIM_UINT32 = 5,
  TCIM_FLOAT16 = 6,
  TCIM_FLOAT32 = 7
} tcim_data_type_t;

/* No call takes or returns one. */
typedef enum TCIM_C_API_INT {
  TCIM_CPU = 0,
  TCIM_HDPL = 1,
  TCIM_DEV_INNER = 3,
  TCIM_COMPND = 5,
  TCIM_BLOCK_ND = 6
} tcim_device_t;
#undef TCIM_C_API_INT

/* Every call: what it returns, its name, its parameters. In the order of the table. */
/* clang-format off */
#define TCIM_C_API_CALLS(X)                                                                                            \
  /* A backend that is NULL or "" is the default. */                                                                   \
  X(tcim_dev_manager_t, tcim_dev_manager_create,                                                                       \
    (const int* device_ids, size_t num_devices, const char* backend_name))                                             \
  X(void, tcim_dev_manager_destroy, (tcim_dev_manager_t dev_manager))                                                  \
                                                                                                                       \
  X(tcim_weight_manager_t, tcim_weight_manager_create, (tcim_dev_manager_t dev_manager))                               \
  X(void, tcim_weight_manager_destroy, (tcim_weight_manager_t weight_manager))                                         \
                                                                                                                       \
  X(tcim_module_option_t, tcim_module_option_create, (tcim_weight_manager_t weight_manager))                           \
  X(void, tcim_module_option_destroy, (tcim_module_option_t option))                                                   \
  X(void, tcim_module_option_set_dummy_tensors,                                                                        \
    (tcim_module_option_t option, const char** tensor_names, size_t num_tensors))                                      \
  /* Accepted without effect. */                                                                                       \
  X(void, tcim_module_option_enable_lazy_mode, (tcim_module_option_t option, bool enable))                             \
  X(void, tcim_module_option_set_model_offset, (tcim_module_option_t option, size_t offset, size_t size))              \
  /* A NULL function takes the one before away. */                                                                     \
  X(void, tcim_module_option_register_abort_callback,                                                                  \
    (tcim_module_option_t option, tcim_abort_callback_fn cb, void* user_data))                                         \
                                                                                                                       \
  /* Without a model. */                                                                                               \
  X(tcim_module_t, tcim_module_create, (void))                                                                         \
  X(void, tcim_module_destroy, (tcim_module_t module))                                                                 \
  X(tcim_status_t, tcim_module_load_model_file,                                                                        \
    (tcim_module_t module, const char* filename, tcim_module_option_t option))                                         \
  X(tcim_status_t, tcim_module_load_model_mem,                                                                         \
    (tcim_module_t module, const void* data, uint64_t len, tcim_module_option_t option))                               \
  /* Names live as long as the module. */                                                                              \
  X(size_t, tcim_module_get_input_num, (tcim_module_t module))                                                         \
  X(const char*, tcim_module_get_input_name, (tcim_module_t module, int index))                                        \
  X(tcim_tensor_info_t, tcim_module_get_input_info, (tcim_module_t module, const char* name))                          \
  X(size_t, tcim_module_get_output_num, (tcim_module_t module))                                                        \
  X(const char*, tcim_module_get_output_name, (tcim_module_t module, int index))                                       \
  X(tcim_tensor_info_t, tcim_module_get_output_info, (tcim_module_t module, const char* name))                         \
  /* A live alias of device memory. */                                                                                 \
  X(tcim_tensor_t, tcim_module_get_dev_input, (tcim_module_t module, const char* name))                                \
  /* A host tensor is copied, a device tensor bound. */                                                                \
  X(tcim_status_t, tcim_module_set_input, (tcim_module_t module, const char* name, tcim_tensor_t tensor))              \
  /* Queues one inference; sync waits for all that is queued. Reads wait, too. */                                      \
  X(tcim_status_t, tcim_module_run, (tcim_module_t module))                                                            \
  X(tcim_status_t, tcim_module_sync, (tcim_module_t module))                                                           \
  /* A fresh host tensor, or into one of the caller's, in its layout and dtype. */                                     \
  X(tcim_tensor_t, tcim_module_get_output, (tcim_module_t module, const char* name))                                   \
  X(tcim_status_t, tcim_module_get_output_into, (tcim_module_t module, const char* name, tcim_tensor_t tensor))        \
                                                                                                                       \
  X(void, tcim_tensor_info_destroy, (tcim_tensor_info_t info))                                                         \
  X(tcim_tensor_info_t, tcim_tensor_info_as_contiguous, (tcim_tensor_info_t info))                                     \
  X(tcim_tensor_info_t, tcim_tensor_info_as_type, (tcim_tensor_info_t info, tcim_data_type_t dtype))                   \
  X(size_t, tcim_tensor_info_get_shape_num, (tcim_tensor_info_t info))                                                 \
  X(int64_t, tcim_tensor_info_get_shape_dim, (tcim_tensor_info_t info, size_t index))                                  \
  /* TCIM_FLOAT32 where it fails, as in the vendor's classes over this table. */                                       \
  X(tcim_data_type_t, tcim_tensor_info_get_data_type, (tcim_tensor_info_t info))                                       \
  X(size_t, tcim_tensor_info_get_mem_size, (tcim_tensor_info_t info))                                                  \
                                                                                                                       \
  /* mem_size 0: what the info needs. ptr NULL: new memory, zeroed; else the caller's, which outlives the tensor. */   \
  X(tcim_tensor_t, tcim_tensor_create_host, (tcim_tensor_info_t info, size_t mem_size, void* ptr))                     \
  X(void, tcim_tensor_destroy, (tcim_tensor_t tensor))                                                                 \
  X(tcim_tensor_info_t, tcim_tensor_get_info, (tcim_tensor_t tensor))                                                  \
  X(tcim_buffer_t, tcim_tensor_get_buffer, (tcim_tensor_t tensor))                                                     \
  X(size_t, tcim_tensor_get_mem_size, (tcim_tensor_t tensor))                                                          \
  X(void*, tcim_tensor_get_data, (tcim_tensor_t tensor))                                                               \
  X(tcim_tensor_t, tcim_tensor_clone, (tcim_tensor_t tensor))                                                          \
  X(tcim_status_t, tcim_tensor_cast_to, (tcim_tensor_t tensor, tcim_tensor_t target))                                  \
  X(tcim_status_t, tcim_tensor_copy_from_host,                                                                         \
    (tcim_tensor_t tensor, const void* src, size_t size, size_t offset))                                               \
  X(tcim_data_type_t, tcim_tensor_get_data_type, (tcim_tensor_t tensor))                                               \
                                                                                                                       \
  X(void, tcim_buffer_destroy, (tcim_buffer_t buffer))                                                                 \
  X(tcim_status_t, tcim_buffer_copy_from_host,                                                                         \
    (tcim_buffer_t buffer, const void* src, size_t size, size_t offset))
/* clang-format on */

#define TCIM_C_API __attribute__((visibility("default")))

/* The type of each call, NAME_fn, and the function of the library, NAME_impl. */
#define TCIM_C_API_DECLARE(result, name, parameters) \
  typedef result(*name##_fn) parameters;             \
  TCIM_C_API result name##_impl parameters;
TCIM_C_API_CALLS(TCIM_C_API_DECLARE)
#undef TCIM_C_API_DECLARE

#define TCIM_C_API_MEMBER(result, name, parameters) name##_fn name;
typedef struct {
  TCIM_C_API_CALLS(TCIM_C_API_MEMBER)
} tcim_api_table_t;
#undef TCIM_C_API_MEMBER

/* Opens a library and fills the table with its calls; false, with the table left alone, if it cannot be opened or one
 * is missing. One library at a time: again with the same path fills another table, another path is refused. */
TCIM_C_API bool tcim_load_library(const char* library_path, tcim_api_table_t* api_table);

/* Closes it. The emulator's stays in memory, so handles are not lost. */
TCIM_C_API void tcim_unload_library(void);

/* What the last failed call of this thread reported, "" if none failed; valid until the thread asks again. */
TCIM_C_API const char* tcim_get_last_error(void);

#ifdef __cplusplus
}
#include "tcim_c_api_classes.h"
#endif

#endif /* TCIM_C_API_H */
