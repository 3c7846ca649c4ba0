/* SPDX-License-Identifier: MIT */
/* Soft devices as programs find, open and query them, in libibverbs and in /sys. */
#include "lib/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/preload_kit.h"

static void devices(void **state)
{
	struct ibv_context *context = open_soft(0);
	struct ibv_device_attr_ex attr;
	struct ibv_gid_entry table[16], entry;
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	(void)state;
	assert_int_equal(ibv_query_device(context, &attr.orig_attr), 0);
	assert_int_equal(attr.orig_attr.node_guid,
			 ibv_get_device_guid(context->device));
	assert_int_equal(ibv_query_device_ex(context, NULL, &attr), 0);
	assert_int_equal(attr.orig_attr.phys_port_cnt, 1);
	assert_int_equal(ibv_query_port(context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_not_equal(ibv_query_port(context, 2, &port), 0);

	assert_int_equal(ibv_query_gid(context, 1, 0, &gid), 0);
	assert_int_equal(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
	assert_memory_equal(&entry.gid, &gid, sizeof(gid));
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(ibv_query_gid_ex(context, 1, 5, &entry, 0), ENODATA);
	assert_int_equal(ibv_query_gid_table(context, table, 16, 0), 1);
	assert_memory_equal(&table[0].gid, &gid, sizeof(gid));
	/* An empty entry is 0, and no failure. */
	assert_int_equal(ibv_query_gid(context, 1, 5, &gid), 0);
	assert_int_equal(gid.global.interface_id, 0);
	assert_int_equal(ibv_query_gid(context, 1, 99, &gid), -1);

	assert_int_equal(ibv_query_pkey(context, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_get_pkey_index(context, 1, pkey), 0);
	assert_int_equal(ibv_query_pkey(context, 1, 1, &pkey), -1);
	assert_int_equal(ibv_close_device(context), 0);
}

/* What there is none of is refused, and does not end in a library that does not know the
 * object. */
static void not_there(void **state)
{
	struct ibv_context *context = open_soft(0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_UD };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	union ibv_gid gid = { .raw = { 0xff } };

	(void)state;
	assert_non_null(qp);
	assert_null(ibv_qp_to_qp_ex(qp));
	assert_int_equal(ibv_attach_mcast(qp, &gid, 0), EOPNOTSUPP);
	assert_int_equal(ibv_resize_cq(cq, 8), EOPNOTSUPP);
	assert_null(ibv_import_pd(context, 1));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_reg_mr(pd, (void *)4096, 4096, 0));
	assert_int_equal(errno, EFAULT);
	attr.qp_type = IBV_QPT_UC;
	assert_null(ibv_create_qp(pd, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* UCX keeps the fd of each context in one epoll instance, and fails if two have the same. */
static void opened_twice(void **state)
{
	struct ibv_context *first = open_soft(0), *second = open_soft(0);
	struct ibv_cq *cq = ibv_create_cq(first, 4, NULL, NULL, 0);
	struct ibv_pd *pd = ibv_alloc_pd(second);
	struct ibv_qp_init_attr attr = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_UD };
	struct ibv_port_attr port;

	(void)state;
	assert_ptr_not_equal(first, second);
	assert_int_not_equal(first->async_fd, second->async_fd);
	assert_ptr_equal(first->device, second->device);
	assert_ptr_equal(pd->context, second);
	/* As in the kernel, what one has made is not the other's. */
	assert_null(ibv_create_qp(pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_close_device(first), 0);
	assert_int_equal(ibv_query_port(second, 1, &port), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(second), 0);
}

/* What is left in a context when it is closed goes on working. */
static void closed_early(void **state)
{
	struct ibv_context *context = open_soft(0);
	struct ibv_pd *pd = ibv_alloc_pd(context);

	(void)state;
	assert_non_null(pd);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* UCX looks for these. */
static void made_up_files(void **state)
{
	struct ibv_context *context = open_soft(0);
	char path[128], text[16];
	struct stat status;
	FILE *file;

	(void)state;
	snprintf(path, sizeof(path), "/dev/infiniband/%s", context->device->dev_name);
	assert_int_equal(stat(path, &status), 0);
	assert_true(S_ISCHR(status.st_mode));
	assert_int_equal(access(path, R_OK | W_OK), 0);
	assert_int_equal(access("/dev/infiniband/soft77", R_OK), -1);
	/* All others are what they are. */
	assert_int_equal(stat("/", &status), 0);
	assert_true(S_ISDIR(status.st_mode));
	file = fopen("/proc/self/comm", "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
}

/* NCCL and others arrange devices by where they are in /sys. */
static void places(void **state)
{
	char path[128], place[PATH_MAX], other[PATH_MAX], target[PATH_MAX] = "";
	const char *name = open_soft(0)->device->name;
	ssize_t length;

	(void)state;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", name);
	assert_string_equal(realpath(path, place), place);
	assert_non_null(strstr(place, "/ffff:00:00.0"));
	length = readlink(path, target, sizeof(target));
	assert_int_equal(length, strlen("../../../ffff:00:00.0"));
	assert_string_equal(target, "../../../ffff:00:00.0");
	assert_int_equal(readlink(path, target, 4), 4);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", name);
	assert_true(readlink(path, target, sizeof(target)) > length);
	assert_memory_equal(target, "../../devices/virtual/", 22);
	snprintf(other, sizeof(other), "/sys%.100s/infiniband/%s", place + 4, name);
	assert_string_equal(realpath(path, target), other);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s//./../..", name);
	assert_string_equal(realpath(path, other), place);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/../../../../../../../..",
		 name);
	assert_string_equal(realpath(path, other), "/");
	/* There is nothing else, and other devices have no such place. */
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/subsystem", name);
	assert_null(realpath(path, other));
	assert_int_equal(errno, ENOENT);
	assert_int_equal(readlink(path, other, sizeof(other)), -1);
	assert_null(realpath("/sys/class/infiniband/soft77/device", other));
	assert_string_equal(realpath("/proc/self/..", other), "/proc");
}

/* Programs that load libibverbs find what those that are linked with it get. */
static void looked_up(void **state)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
	struct ibv_device **(*list)(int *count) = ibv_get_device_list;
	void *symbol = dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1");

	(void)state;
	assert_memory_equal(&symbol, &list, sizeof(symbol));
	assert_ptr_equal(dlsym(verbs, "ibv_get_device_list"), symbol);
	assert_null(dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.9"));
}

/* Programs ask in this way whether memory of GPUs can be registered. */
static void dmabuf_probe(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(open_soft(0));

	(void)state;
	assert_null(ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices),	 cmocka_unit_test(not_there),
		cmocka_unit_test(opened_twice),	 cmocka_unit_test(closed_early),
		cmocka_unit_test(made_up_files), cmocka_unit_test(places),
		cmocka_unit_test(looked_up),	 cmocka_unit_test(dmabuf_probe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
