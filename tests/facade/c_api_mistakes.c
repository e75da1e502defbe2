/* Mistakes of a program in C, which links the library. argv: a model, the library, a file that is no model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tcim/tcim_c_api.h>

#define EXPECT(x)                                                                           \
  if (!(x)) {                                                                               \
    fprintf(stderr, "line %d: %s (last error: %s)\n", __LINE__, #x, tcim_get_last_error()); \
    exit(1);                                                                                \
  }
#define EXPECT_SAID(words) EXPECT(strstr(tcim_get_last_error(), words) != NULL)

static int calls = 0;

static bool abort_at(void* user_data) { return ++calls >= *(const int*)user_data; }

static tcim_module_option_t new_option(void) {
  const int device = 0;
  tcim_dev_manager_t devices = tcim_dev_manager_create_impl(&device, 1, NULL);
  tcim_weight_manager_t weights = tcim_weight_manager_create_impl(devices);
  tcim_module_option_t option = tcim_module_option_create_impl(weights);
  EXPECT(devices != NULL && weights != NULL && option != NULL);
  tcim_weight_manager_destroy_impl(weights);
  tcim_dev_manager_destroy_impl(devices);
  return option;
}

static void managers(void) {
  const int devices[] = {0, -1};
  EXPECT(tcim_get_last_error()[0] == '\0');
  EXPECT(tcim_dev_manager_create_impl(NULL, 1, "") == NULL);
  EXPECT_SAID("tcim_dev_manager_create_impl: device_ids is NULL");
  EXPECT(tcim_dev_manager_create_impl(devices, 0, "") == NULL);
  EXPECT_SAID("the list of device ids is empty");
  EXPECT(tcim_dev_manager_create_impl(devices, 2, "") == NULL);
  EXPECT(tcim_dev_manager_create_impl(devices, (size_t)-1, "") == NULL);
  EXPECT(tcim_dev_manager_create_impl(devices, 1, "Xh3") == NULL);
  EXPECT_SAID("unknown backend 'Xh3'");
  EXPECT(tcim_weight_manager_create_impl(NULL) == NULL);
  EXPECT_SAID("the handle of the dev_manager is NULL");
  EXPECT(tcim_module_option_create_impl(NULL) == NULL);
}

static void handles(const char* model) {
  tcim_module_option_t option = new_option();
  tcim_module_t module = tcim_module_create_impl();
  EXPECT(tcim_module_load_model_file_impl(NULL, model, option) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_module_load_model_file_impl(module, model, NULL) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_module_load_model_file_impl(module, NULL, option) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_module_load_model_mem_impl(module, NULL, 8, option) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_module_load_model_mem_impl(module, "", UINT64_MAX, option) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_module_run_impl(module) == TCIM_UNINITIALIZED && tcim_module_get_input_num_impl(module) == 0);
  EXPECT(tcim_module_get_input_name_impl(module, 0) == NULL);
  EXPECT(tcim_module_load_model_file_impl(module, model, option) == TCIM_OK);

  tcim_tensor_info_t info = tcim_module_get_input_info_impl(module, "a");
  tcim_tensor_t tensor = tcim_tensor_create_host_impl(info, 0, NULL);
  /* Of another kind, of the stack, destroyed, destroyed again; the object goes on where another needs it. */
  EXPECT(tcim_module_run_impl((tcim_module_t)(void*)tensor) == TCIM_INVALID_ARGUMENT);
  EXPECT_SAID("the handle of the module stands for nothing");
  EXPECT(tcim_module_set_input_impl(module, "a", (tcim_tensor_t)(void*)&info) == TCIM_INVALID_ARGUMENT);
  tcim_tensor_info_destroy_impl(info);
  EXPECT(tcim_tensor_info_get_mem_size_impl(info) == 0 && tcim_tensor_get_mem_size_impl(tensor) == 12);
  EXPECT(tcim_tensor_info_get_data_type_impl(info) == TCIM_FLOAT32);
  EXPECT(tcim_tensor_create_host_impl(info, 0, NULL) == NULL);
  tcim_tensor_info_destroy_impl(info);
  EXPECT_SAID("tcim_tensor_info_destroy_impl: the handle of the info stands for nothing");
  tcim_tensor_t other = tcim_tensor_clone_impl(tensor);
  EXPECT(other != NULL && other != tensor);
  tcim_tensor_destroy_impl(tensor);
  tcim_tensor_destroy_impl(tensor);
  EXPECT(tcim_module_set_input_impl(module, "a", tensor) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_module_set_input_impl(module, "a", other) == TCIM_OK);
  tcim_tensor_destroy_impl(NULL);
  EXPECT_SAID("the handle of the tensor stands for nothing"); /* as before */

  EXPECT(tcim_module_set_input_impl(module, NULL, other) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_module_set_input_impl(module, "none", other) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_module_get_input_info_impl(module, "none") == NULL &&
         tcim_module_get_output_impl(module, "none") == NULL);
  EXPECT(tcim_module_get_input_name_impl(module, 99) == NULL && tcim_module_get_input_name_impl(module, -1) == NULL);
  EXPECT(tcim_module_get_input_name_impl(module, 0) == tcim_module_get_input_name_impl(module, 0));
  tcim_tensor_destroy_impl(other);
  tcim_module_option_destroy_impl(option);
  tcim_module_destroy_impl(module);
  EXPECT(tcim_module_sync_impl(module) == TCIM_INVALID_ARGUMENT);
}

static void tensors(const char* model) {
  const char* dummies[] = {"a", NULL};
  tcim_module_option_t option = new_option();
  tcim_module_t module = tcim_module_create_impl();
  tcim_module_option_set_dummy_tensors_impl(option, dummies, 2);
  EXPECT_SAID("a name in tensor_names is NULL");
  tcim_module_option_set_dummy_tensors_impl(option, NULL, 1);
  tcim_module_option_set_dummy_tensors_impl(option, dummies, 1);
  EXPECT(tcim_module_load_model_file_impl(module, model, option) == TCIM_OK);
  tcim_tensor_t dummy = tcim_module_get_dev_input_impl(module, "a");
  EXPECT(dummy != NULL && tcim_tensor_get_data_impl(dummy) == NULL && tcim_tensor_get_buffer_impl(dummy) == NULL);
  EXPECT_SAID("the tensor has no memory");
  EXPECT(tcim_tensor_copy_from_host_impl(dummy, &option, 1, 0) == TCIM_UNINITIALIZED);
  EXPECT(tcim_module_run_impl(module) == TCIM_UNINITIALIZED);

  tcim_tensor_info_t info = tcim_tensor_get_info_impl(dummy);
  EXPECT(tcim_tensor_info_get_shape_num_impl(info) == 2 && tcim_tensor_info_get_shape_dim_impl(info, 1) == 3);
  EXPECT(tcim_tensor_info_get_shape_dim_impl(info, 2) == 0);
  EXPECT_SAID("axis 2 of a shape with 2 axes");
  EXPECT(tcim_tensor_info_as_type_impl(info, (tcim_data_type_t)99) == NULL);
  EXPECT(tcim_tensor_create_host_impl(info, 1, NULL) == NULL);
  tcim_tensor_t tensor = tcim_tensor_create_host_impl(info, 0, NULL);
  const char bytes[12] = {0};
  EXPECT(tcim_tensor_copy_from_host_impl(tensor, bytes, 12, 0) == TCIM_OK);
  EXPECT(tcim_tensor_copy_from_host_impl(tensor, bytes, 12, 1) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_tensor_copy_from_host_impl(tensor, bytes, 12, (size_t)-1) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_tensor_copy_from_host_impl(tensor, NULL, 12, 0) == TCIM_INVALID_ARGUMENT);
  EXPECT(tcim_tensor_cast_to_impl(tensor, dummy) == TCIM_UNINITIALIZED);
  EXPECT(tcim_tensor_cast_to_impl(tensor, NULL) == TCIM_INVALID_ARGUMENT);
  tcim_tensor_destroy_impl(tensor);
  tcim_tensor_info_destroy_impl(info);
  tcim_tensor_destroy_impl(dummy);
  tcim_module_destroy_impl(module);
  tcim_module_option_destroy_impl(option);
}

/* The model as a part of a file and of memory; a load that is aborted; a file that is none. */
static void loads(const char* model, const char* no_model) {
  FILE* file = fopen(model, "rb");
  char* bytes = malloc(1 << 20);
  const size_t size = fread(bytes + 5, 1, (1 << 20) - 5, file);
  fclose(file);
  tcim_module_option_t option = new_option();
  tcim_module_t module = tcim_module_create_impl();
  EXPECT(tcim_module_load_model_mem_impl(module, bytes + 5, size, option) == TCIM_OK);
  tcim_module_option_set_model_offset_impl(option, 5, size);
  EXPECT(tcim_module_load_model_mem_impl(module, bytes, size + 5, option) == TCIM_OK);
  EXPECT(tcim_module_load_model_mem_impl(module, bytes, size + 4, option) == TCIM_INVALID_ARGUMENT ||
         tcim_module_load_model_mem_impl(module, bytes, size + 4, option) == TCIM_ERR_UNDEFINED);
  tcim_module_option_destroy_impl(option);

  option = new_option();
  int at = 1;
  tcim_module_option_register_abort_callback_impl(option, abort_at, &at);
  EXPECT(tcim_module_load_model_file_impl(module, model, option) == TCIM_ERR_UNDEFINED && calls == 1);
  EXPECT(tcim_module_get_input_num_impl(module) == 4); /* the model from before */
  tcim_module_option_register_abort_callback_impl(option, NULL, NULL);
  EXPECT(tcim_module_load_model_file_impl(module, model, option) == TCIM_OK && calls == 1);
  EXPECT(tcim_module_load_model_file_impl(module, no_model, option) == TCIM_ERR_UNDEFINED);
  EXPECT(tcim_module_load_model_file_impl(module, "/none.hmm", option) == TCIM_ERR_UNDEFINED);
  EXPECT_SAID("/none.hmm");
  tcim_module_option_destroy_impl(option);
  tcim_module_destroy_impl(module);
  free(bytes);
}

static void tables(const char* library, const char* no_library) {
  tcim_api_table_t table, untouched;
  memset(&table, 1, sizeof(table));
  untouched = table;
  EXPECT(!tcim_load_library(NULL, &table) && !tcim_load_library(library, NULL));
  EXPECT(!tcim_load_library(no_library, &table));
  EXPECT(!tcim_load_library("libdl.so.2", &table)); /* where tcim_* are not */
  EXPECT_SAID("tcim_dev_manager_create_impl");
  EXPECT(memcmp(&table, &untouched, sizeof(table)) == 0);
  EXPECT(tcim_load_library(library, &table) && table.tcim_module_create == tcim_module_create_impl);
  EXPECT(table.tcim_buffer_copy_from_host == tcim_buffer_copy_from_host_impl);
  EXPECT(tcim_load_library(library, &table) && !tcim_load_library("libc.so.6", &table));
  EXPECT_SAID("call tcim_unload_library before");
  tcim_module_t module = table.tcim_module_create();
  tcim_unload_library();
  tcim_unload_library();
  EXPECT(tcim_load_library(library, &table) && table.tcim_module_run(module) == TCIM_UNINITIALIZED);
  tcim_unload_library();
}

int main(int argc, char** argv) {
  EXPECT(argc == 4);
  managers();
  handles(argv[1]);
  tensors(argv[1]);
  loads(argv[1], argv[3]);
  tables(argv[2], argv[3]);
  return 0;
}
