/* SPDX-License-Identifier: MIT */
/* Soft devices: registration, and each allocation of each constructor failed once. */
#include "lib/test.h"
#include "lib/soft_kit.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/fault.h"

#define FAR (256u << 10)

static int try_register(struct kit *kit, void *addr, size_t length, unsigned access)
{
	struct ibv_mr *mr;
	int ret = kit->control->reg_mr(kit->end[A].pd, addr, length, access, &mr);

	if (!ret) {
		assert_ptr_equal(mr->addr, addr);
		assert_int_equal(mr->length, length);
		assert_int_not_equal(mr->lkey, mr->rkey);
		assert_int_equal(kit->control->dereg_mr(mr), 0);
	}
	return ret;
}

static void registration(void **state)
{
	struct kit *kit = kit_open(NULL);
	uint8_t *bytes = kit->end[A].bytes;

	(void)state;
	assert_int_equal(try_register(kit, bytes, 4096, 0), 0);
	assert_int_equal(try_register(kit, bytes + 5, 3, KIT_ACCESS), 0);
	assert_int_equal(try_register(kit, bytes, 4096, IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(try_register(kit, bytes, 4096,
				      KIT_ACCESS | IBV_ACCESS_RELAXED_ORDERING),
			 0);
	assert_int_equal(try_register(kit, bytes, 0, 0), -EINVAL);
	assert_int_equal(try_register(kit, bytes, 4096, IBV_ACCESS_REMOTE_WRITE),
			 -EINVAL);
	assert_int_equal(try_register(kit, bytes, 4096, IBV_ACCESS_REMOTE_ATOMIC),
			 -EINVAL);
	assert_int_equal(try_register(kit, bytes, 4096, IBV_ACCESS_ON_DEMAND), -EINVAL);
	assert_int_equal(try_register(kit, bytes, SIZE_MAX, 0), -EINVAL);
	assert_int_equal(try_register(kit, (void *)4096, 4096, 0), -EFAULT);
	kit_close(kit);
}

static void read_only_memory(void **state)
{
	struct kit *kit = kit_open(NULL);
	uint8_t *page =
		mmap(NULL, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_int_equal(try_register(kit, page, 4096, IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(try_register(kit, page, 4096, IBV_ACCESS_LOCAL_WRITE),
			 -EFAULT);
	/* A hole in the middle. */
	munmap(page + 4096, 4096);
	assert_int_equal(try_register(kit, page, 3 * 4096, 0), -EFAULT);
	assert_int_equal(try_register(kit, page + 4090, 6, 0), 0);
	assert_int_equal(try_register(kit, page + 4090, 7, 0), -EFAULT);
	munmap(page, 3 * 4096);
	kit_close(kit);
}

/* What mmap() takes is as good as a dma-buf; addresses are those that were asked for. */
static void dma_buf(void **state)
{
	struct kit *kit = kit_open(NULL);
	const struct snt_control *control = kit->control;
	struct ibv_pd *pd = kit->end[B].pd;
	int fd = memfd_create("soft", 0);
	struct ibv_send_wr *bad, wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	uint8_t got[3000];

	(void)state;
	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(control->reg_dmabuf_mr(pd, fd, 0, 0, 0, KIT_ACCESS, &mr),
			 -EINVAL);
	assert_int_equal(control->reg_dmabuf_mr(pd, -1, 0, 64, 0, KIT_ACCESS, &mr),
			 -EBADF);
	/* Beyond the end of the file there is nothing. */
	assert_int_equal(control->reg_dmabuf_mr(pd, fd, 8000, 4096, 0, KIT_ACCESS, &mr),
			 -EFAULT);
	assert_int_equal(control->reg_dmabuf_mr(pd, fd, 100, 3000, 0x1000, KIT_ACCESS,
						&mr),
			 0);
	kit_fill(kit, A, 0, 3000, 1);
	wr = kit_wr(kit, A,
		    &(struct kit_send){
			    .id = 1, .opcode = IBV_WR_RDMA_WRITE, .length = 3000 },
		    &sge);
	wr.wr.rdma.remote_addr = 0x1000;
	wr.wr.rdma.rkey = mr->rkey;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), 0);
	kit_run(kit);
	kit_expect(kit, A, 1, IBV_WC_SUCCESS);
	assert_int_equal(pread(fd, got, sizeof(got), 100), sizeof(got));
	assert_memory_equal(got, kit->end[A].bytes, sizeof(got));
	/* An atomic that is aligned for the peer is not for us. */
	wr = kit_wr(kit, A,
		    &(struct kit_send){ .id = 2,
					.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					.length = 8,
					.compare_add = 1 },
		    &sge);
	wr.wr.atomic.remote_addr = 0x1000;
	wr.wr.atomic.rkey = mr->rkey;
	assert_int_equal(ibv_post_send(kit->end[A].qp, &wr, &bad), 0);
	kit_run(kit);
	kit_expect(kit, A, 2, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(control->dereg_mr(mr), 0);
	close(fd);
	kit_close(kit);
}

/*
 * Allocations
 */

static void driver_random(void *arg, void *buffer, size_t length)
{
	(void)arg;
	memset(buffer, 0x5a, length);
}

static void driver_kick(void *arg)
{
	(void)arg;
}

static int create_device(void)
{
	static const struct snt__soft_driver driver = { .random = driver_random,
							.kick = driver_kick };
	struct snt__soft_config config = { .name = "soft", .driver = &driver };
	struct snt__soft_device *device = NULL;
	int ret = snt__soft_device_create(&config, &device);

	if (ret)
		assert_null(device);
	else
		assert_int_equal(snt__soft_device_destroy(device), 0);
	return ret;
}

static struct kit *shared;

static int create_pd(void)
{
	struct ibv_pd *pd;
	int ret = shared->control->alloc_pd(shared->end[A].context, &pd);

	return ret ? ret : shared->control->dealloc_pd(pd);
}

static int create_mr(void)
{
	struct ibv_mr *mr;
	int ret = shared->control->reg_mr(shared->end[A].pd, shared->end[A].bytes, 64,
					  0, &mr);

	return ret ? ret : shared->control->dereg_mr(mr);
}

static int create_dmabuf_mr(void)
{
	int fd = memfd_create("soft", 0);
	struct ibv_mr *mr;
	int ret;

	assert_int_equal(ftruncate(fd, 4096), 0);
	ret = shared->control->reg_dmabuf_mr(shared->end[A].pd, fd, 0, 64, 0, 0, &mr);
	close(fd);
	return ret ? ret : shared->control->dereg_mr(mr);
}

static int create_channel(void)
{
	struct ibv_comp_channel *channel;
	int ret = shared->control->create_channel(shared->end[A].context, &channel);

	return ret ? ret : shared->control->destroy_channel(channel);
}

static int create_cq(void)
{
	struct ibv_cq *cq;
	int ret = shared->control->create_cq(shared->end[A].context, 8, NULL,
					     shared->end[A].channel, 0, &cq);

	return ret ? ret : shared->control->destroy_cq(cq);
}

static int create_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 8, .max_sge = 2 } };
	struct ibv_srq *srq;
	int ret = shared->control->create_srq(shared->end[A].pd, &attr, &srq);

	return ret ? ret : shared->control->destroy_srq(srq);
}

static int create_qp_of(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = type,
		.send_cq = shared->end[A].cq,
		.recv_cq = shared->end[A].cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4 },
	};
	struct ibv_qp *qp;
	int ret = shared->control->create_qp(shared->end[A].pd, &attr, &qp);

	return ret ? ret : shared->control->destroy_qp(qp);
}

static int create_rc(void)
{
	return create_qp_of(IBV_QPT_RC);
}

static int create_ud(void)
{
	return create_qp_of(IBV_QPT_UD);
}

static int create_ah(void)
{
	struct ibv_qp_attr attr;
	struct ibv_ah *ah;
	int ret;

	kit_attr(shared, A, IBV_QPS_RTR, &attr);
	ret = snt__soft_create_ah(shared->end[A].pd, &attr.ah_attr, &ah);
	return ret ? ret : snt__soft_destroy_ah(ah);
}

/* The kit's own destructors at the end find out whether anything was left behind. */
static void allocations_fail(void **state)
{
	static int (*const creators[])(void) = {
		create_device, create_pd,  create_mr, create_dmabuf_mr, create_channel,
		create_cq,     create_srq, create_rc, create_ud,	create_ah,
	};

	(void)state;
	shared = kit_open(NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(creators); i++) {
		unsigned failed = 0;

		for (unsigned nth = 1;; nth++) {
			int ret;

			fault_arm(nth);
			ret = creators[i]();
			if (!fault_was_hit()) {
				fault_arm(0);
				assert_int_equal(ret, 0);
				break;
			}
			assert_int_equal(ret, -ENOMEM);
			failed++;
		}
		assert_in_range(failed, 1, 16);
	}
	kit_close(shared);
}

/* No fds are left, which channels and devices need. */
static void fds_run_out(void **state)
{
	struct rlimit limit, none;
	int fd;

	(void)state;
	shared = kit_open(NULL);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	fd = dup(0);
	close(fd);
	none = (struct rlimit){ .rlim_cur = (rlim_t)fd, .rlim_max = limit.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(create_device(), -EMFILE);
	assert_int_equal(create_channel(), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(create_channel(), 0);
	kit_close(shared);
}

static void bad_configurations(void **state)
{
	static const struct snt__soft_driver driver = { .random = driver_random,
							.kick = driver_kick };
	const struct snt__soft_config good = { .name = "soft", .driver = &driver };
	struct snt__soft_config config;
	struct snt__soft_device *device;

#define REFUSED(field, value)                                                         \
	do {                                                                          \
		config = good;                                                        \
		config.field = (value);                                               \
		assert_int_equal(snt__soft_device_create(&config, &device), -EINVAL); \
	} while (0)

	(void)state;
	REFUSED(name, NULL);
	REFUSED(driver, NULL);
	REFUSED(mtu, 6);
	REFUSED(gid_count, SNT__SOFT_GID_MAX + 1);
	REFUSED(qp_max, (1 << 16) + 1);
	REFUSED(mr_max, (1 << 20) + 1);
	REFUSED(read_max, 129);
	REFUSED(inline_max, 4097);
#undef REFUSED
	assert_int_equal(snt__soft_device_destroy(NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registration), cmocka_unit_test(read_only_memory),
		cmocka_unit_test(dma_buf),	cmocka_unit_test(allocations_fail),
		cmocka_unit_test(fds_run_out),	cmocka_unit_test(bad_configurations),
	};

	return cmocka_run_group_tests_name("soft_memory", tests, NULL, NULL);
}
