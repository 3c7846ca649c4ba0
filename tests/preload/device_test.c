/* SPDX-License-Identifier: MIT */
/* Soft devices as programs find, open and query them, in libibverbs and in /sys. */
#include "lib/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/preload_kit.h"

/* In newer headers. */
struct ibv_mr_init_attr;
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);

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

/* Verbs that are inline functions, which go through the context. */
static void missing_inline_verbs_fail(void **state)
{
	struct ibv_context *context = open_soft(0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 4 };
	struct ibv_wq_init_attr wq_attr = { .wq_type = IBV_WQT_RQ, .pd = pd, .cq = cq };
	struct ibv_rwq_ind_table_init_attr table_attr = { 0 };
	struct ibv_qp_init_attr_ex qp_attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr domain_attr = { .pd = pd };
	struct ibv_xrcd_init_attr xrcd_attr = {
		.fd = -1,
		.oflags = O_CREAT,
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS
	};
	struct ibv_counters_init_attr counters_attr = { 0 };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_sge sge = { 0 };
	uint64_t speed;

	(void)state;
#define REFUSED(call) assert_true(!(call) && (errno == EOPNOTSUPP || errno == ENOSYS))
	REFUSED(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	REFUSED(ibv_create_cq_ex(context, &cq_attr));
	REFUSED(ibv_create_wq(context, &wq_attr));
	REFUSED(ibv_create_rwq_ind_table(context, &table_attr));
	REFUSED(ibv_create_qp_ex(context, &qp_attr));
	REFUSED(ibv_alloc_dm(context, &dm_attr));
	REFUSED(ibv_alloc_td(context, &td_attr));
	REFUSED(ibv_alloc_parent_domain(context, &domain_attr));
	REFUSED(ibv_open_xrcd(context, &xrcd_attr));
	REFUSED(ibv_create_counters(context, &counters_attr));
	REFUSED(ibv_alloc_null_mr(pd));
	REFUSED(ibv_reg_mr_ex(pd, NULL));
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1),
			 EOPNOTSUPP);
	assert_int_equal(ibv_query_rt_values_ex(context, &values), EOPNOTSUPP);
	assert_int_equal(ibv_query_port_speed(context, 1, &speed), EOPNOTSUPP);
	qp_attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	qp_attr.cap.max_send_wr = 1;
	assert_int_equal(ibv_destroy_qp(ibv_create_qp_ex(context, &qp_attr)), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* A QP that is its own peer. */
static struct ibv_qp *make_own_peer(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.timeout = 14,
		.retry_cnt = 7,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};

	assert_non_null(qp);
	attr.dest_qp_num = qp->qp_num;
	assert_int_equal(ibv_query_gid(pd->context, 1, 0, &attr.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS),
			 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
	return qp;
}

static void post_and_wait(struct ibv_qp *qp, struct ibv_send_wr *wr,
			  enum ibv_wc_status status)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr->send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(qp, wr, &bad), 0);
	while (!ibv_poll_cq(qp->send_cq, 1, &wc))
		;
	assert_int_equal(wc.status, status);
}

/* The device says that it has windows of type 2, and it has. */
static void memory_windows(void **state)
{
	struct ibv_context *context = open_soft(0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp *qp = make_own_peer(pd, cq);
	char bytes[64] = "from here ......";
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_sge sge = { (uintptr_t)bytes, 9, mr->lkey };
	struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW };
	struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE,
				     .sg_list = &sge,
				     .num_sge = 1 };
	struct ibv_device_attr attr;

	(void)state;
	assert_int_equal(ibv_query_device(context, &attr), 0);
	assert_true(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	assert_false(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	assert_in_range(attr.max_mw, 1, attr.max_mr);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info.mr = mr;
	bind.bind_mw.bind_info.addr = (uintptr_t)bytes + 32;
	bind.bind_mw.bind_info.length = 9;
	bind.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	post_and_wait(qp, &bind, IBV_WC_SUCCESS);
	write.wr.rdma.remote_addr = (uintptr_t)bytes + 32;
	write.wr.rdma.rkey = bind.bind_mw.rkey;
	post_and_wait(qp, &write, IBV_WC_SUCCESS);
	assert_string_equal(bytes + 32, "from here");
	write.wr.rdma.remote_addr++;
	/* Refusing it, the QP has failed. */
	post_and_wait(qp, &write, IBV_WC_WR_FLUSH_ERR);
	assert_string_equal(bytes + 32, "from here");
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void *open_and_close(void *arg)
{
	for (unsigned i = 0; i < 200; i++) {
		struct ibv_context *context = open_soft(i % 2);
		struct ibv_pd *pd = ibv_alloc_pd(context);
		struct ibv_port_attr port;

		assert_non_null(pd);
		assert_int_equal(ibv_query_port(context, 1, &port), 0);
		assert_int_equal(ibv_dealloc_pd(pd), 0);
		assert_int_equal(ibv_close_device(context), 0);
	}
	return arg;
}

static void opened_by_threads(void **state)
{
	pthread_t threads[4];

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_and_close,
						NULL),
				 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
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

/* As programs that were built for an old C library call it. */
static int old_stat(const char *path, struct stat *stat_out)
{
	void *symbol = dlsym(RTLD_DEFAULT, "__xstat");
	int (*xstat)(int version, const char *path, struct stat *stat_out);

	assert_non_null(symbol);
	memcpy(&xstat, &symbol, sizeof(xstat));
	assert_int_equal(xstat(7, path, stat_out), -1);
	assert_int_equal(errno, EINVAL);
	return xstat(1, path, stat_out);
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
	assert_int_equal(old_stat(path, &status), 0);
	assert_true(S_ISCHR(status.st_mode));
	assert_int_equal(old_stat("/dev/infiniband/soft77", &status), -1);
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
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/driver", name);
	assert_null(realpath(path, other));
	assert_int_equal(errno, ENOENT);
	assert_int_equal(readlink(path, other, sizeof(other)), -1);
	assert_null(realpath("/sys/class/infiniband/soft77/device", other));
	assert_null(realpath("/sys/devices/virtual/sennit/ffff:4d:00.0", other));
	assert_string_equal(realpath("/proc/self/..", other), "/proc");
}

/* NCCL fuses devices that have no PCI address of their own, and then finds none of them. */
static void a_place_is_that_of_a_pci_device(void **state)
{
	static const char device[] = "/sys/devices/virtual/sennit/ffff:00:00.0";
	char path[128], found[PATH_MAX];
	ssize_t length;

	(void)state;
	assert_string_equal(realpath(device, found), device);
	snprintf(path, sizeof(path), "%s/subsystem", device);
	assert_string_equal(realpath(path, found), "/sys/bus/pci");
	length = readlink(path, found, sizeof(found));
	assert_int_equal(length, strlen("../../../../bus/pci"));
	assert_memory_equal(found, "../../../../bus/pci", length);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/subsystem",
		 open_soft(0)->device->name);
	assert_string_equal(realpath(path, found), "/sys/bus/pci");
	assert_int_equal(readlink(path, found, sizeof(found)), length);
	snprintf(path, sizeof(path), "%s/subsystem/../..", device);
	assert_string_equal(realpath(path, found), "/sys");
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
		cmocka_unit_test(devices),
		cmocka_unit_test(not_there),
		cmocka_unit_test(missing_inline_verbs_fail),
		cmocka_unit_test(memory_windows),
		cmocka_unit_test(opened_by_threads),
		cmocka_unit_test(opened_twice),
		cmocka_unit_test(closed_early),
		cmocka_unit_test(made_up_files),
		cmocka_unit_test(places),
		cmocka_unit_test(looked_up),
		cmocka_unit_test(dmabuf_probe),
		cmocka_unit_test(a_place_is_that_of_a_pci_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
