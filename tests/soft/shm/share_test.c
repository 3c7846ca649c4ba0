/* SPDX-License-Identifier: MIT */
/* Memory that is read where it is, by devices of another process or of the same. */
#include "lib/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/shared_mem.h"
#include "dev/soft/core.h"
#include "lib/patience.h"
#include "lib/shm_kit.h"

static const struct snt__udp_opts by_memory = { .shm = true };

static struct snt__shared_mem *make_place(size_t length)
{
	struct snt__shared_mem *place;

	assert_int_equal(snt__shared_mem_make(length, &place), 0);
	return place;
}

/*
 * Places
 */

static void a_place_is_found_by_its_addresses(void **state)
{
	struct snt__shared_mem *place[20], found;

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		place[i] = make_place(1 + i * 3000);
	for (unsigned i = 0; i < 20; i++) {
		size_t size = place[i]->size;

		assert_true(size >= 1 + i * 3000);
		for (unsigned at = 0; at < size; at += 512)
			assert_int_equal(place[i]->bytes[at], 0);
		assert_true(snt__shared_mem_find(place[i]->bytes, size, &found));
		assert_int_equal(found.id, place[i]->id);
		assert_true(
			snt__shared_mem_find(place[i]->bytes + size - 1, 1, &found));
		assert_int_equal(found.id, place[i]->id);
		assert_false(
			snt__shared_mem_find(place[i]->bytes + size - 1, 2, &found));
		assert_false(
			snt__shared_mem_find(place[i]->bytes + 1, SIZE_MAX, &found));
	}
	assert_false(snt__shared_mem_find(&found, 1, &found));
	for (unsigned i = 0; i < 20; i++) {
		uint8_t *bytes = place[i]->bytes;

		snt__shared_mem_free(place[i]);
		assert_false(snt__shared_mem_find(bytes, 1, &found));
		for (unsigned j = i + 1; j < 20; j++)
			assert_true(snt__shared_mem_find(place[j]->bytes, 1, &found));
	}
	snt__shared_mem_free(NULL);
	assert_int_equal(snt__shared_mem_make(SIZE_MAX - 1, place), -ENOMEM);
}

/* A peer that is given a place may read it. What it may write to is decided by keys,
 * not by this. */
static void is_for_reading_only(void **state)
{
	struct snt__shared_mem *place = make_place(4096);
	int fd = snt__shared_mem_fd(place->id);
	uint8_t *view;

	(void)state;
	assert_true(fd >= 0);
	place->bytes[0] = 1;
	assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   4096),
			 -1);
	view = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(view, MAP_FAILED);
	assert_int_equal(mprotect(view, 4096, PROT_READ | PROT_WRITE), -1);
	place->bytes[1] = 2;
	assert_int_equal(view[0], 1);
	assert_int_equal(view[1], 2);
	munmap(view, 4096);
	close(fd);
	snt__shared_mem_free(place);
}

static void only_what_cannot_vanish_is_mapped(void **state)
{
	int fd = memfd_create("sennit-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_true(fd >= 0 && file >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(snt__shared_mem_size(fd), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(snt__shared_mem_size(fd), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
	assert_int_equal(snt__shared_mem_size(fd), 4096);
	assert_int_equal(snt__shared_mem_size(file), 0);
	assert_int_equal(snt__shared_mem_size(-1), 0);
	close(fd);
	close(file);
}

/*
 * Children, which have none of them
 */

/* What it returns is 0 if all is well there. */
static void expect_in_child(int (*check)(void *arg), void *arg)
{
	pid_t child = fork();
	int status;

	if (!child) {
		alarm(patience_s(60)); /* ends it, if it waits for what is not there */
		_exit(check(arg));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

struct parents {
	struct snt__shared_mem *place, was;
};

/* Its parent's addresses are free, and what it puts there is its own. */
static int use_the_address(void *arg)
{
	const struct parents *parents = arg;
	size_t size = parents->was.size;
	struct snt__shared_mem found;
	uint8_t *own;

	own = mmap(parents->was.bytes, size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (own != parents->was.bytes)
		return 1;
	if (snt__shared_mem_find(own, 1, &found))
		return 2;
	if (fcntl(parents->was.fd, F_GETFD) >= 0)
		return 3;
	own[size - 1] = 1;
	snt__shared_mem_free(parents->place);
	if (msync(own, size, MS_ASYNC))
		return 4;
	return 0;
}

static void a_child_shares_no_memory(void **state)
{
	struct snt__shared_mem *place = make_place(100000), found;
	struct parents parents = { place, *place };

	(void)state;
	expect_in_child(use_the_address, &parents);
	assert_true(snt__shared_mem_find(place->bytes, 1, &found));
	snt__shared_mem_free(place);
}

static int make_one(void *arg)
{
	struct snt__shared_mem *place, found;

	(void)arg;
	if (snt__shared_mem_make(1, &place) ||
	    !snt__shared_mem_find(place->bytes, 1, &found))
		return 1;
	snt__shared_mem_free(place);
	return 0;
}

static void *look_all_the_time(void *arg)
{
	struct snt__shared_mem *place = make_place(1), found;

	while (!*(atomic_bool *)arg)
		snt__shared_mem_find(place->bytes, 1, &found);
	snt__shared_mem_free(place);
	return NULL;
}

/* Whatever another thread was doing when it was made. */
static void a_child_makes_its_own(void **state)
{
	atomic_bool over = false;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, look_all_the_time, &over), 0);
	for (unsigned i = 0; i < 30; i++)
		expect_in_child(make_one, NULL);
	over = true;
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/*
 * Hosts that have no file for it
 */

static void memory_without_a_file_is_ordinary(void **state)
{
	struct snt__shared_mem *place, found;
	int ret;

	(void)state;
	fds_exhaust();
	ret = snt__shared_mem_make(100000, &place);
	fds_restore();
	assert_int_equal(ret, 0);
	for (unsigned i = 0; i < 100000; i += 512)
		assert_int_equal(place->bytes[i]++, 0);
	assert_false(snt__shared_mem_find(place->bytes, 1, &found));
	snt__shared_mem_free(place);
}

/* As after ulimit -f. The kernel sends SIGXFSZ, of which the program must not know. */
static void a_file_size_limit_does_not_kill(void **state)
{
	struct snt__shared_mem *place, found;
	sigset_t pending, mask;
	int ret;

	(void)state;
	file_size_limit();
	ret = snt__shared_mem_make(100000, &place);
	file_size_restore();
	assert_int_equal(ret, 0);
	assert_false(snt__shared_mem_find(place->bytes, 1, &found));
	for (unsigned i = 0; i < 100000; i += 512)
		assert_int_equal(place->bytes[i]++, 0);
	snt__shared_mem_free(place);
	assert_int_equal(sigpending(&pending), 0);
	assert_false(sigismember(&pending, SIGXFSZ));
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
	assert_false(sigismember(&mask, SIGXFSZ));
}

/* A program that has blocked SIGXFSZ, and one pending, still has it afterwards. */
static void a_pending_signal_stays(void **state)
{
	struct snt__shared_mem *place;
	sigset_t xfsz, before;
	int taken;

	(void)state;
	sigemptyset(&xfsz);
	sigaddset(&xfsz, SIGXFSZ);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &xfsz, &before), 0);
	assert_int_equal(pthread_kill(pthread_self(), SIGXFSZ), 0);
	file_size_limit();
	assert_int_equal(snt__shared_mem_make(100000, &place), 0);
	file_size_restore();
	snt__shared_mem_free(place);
	assert_int_equal(sigwait(&xfsz, &taken), 0);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

/* In a namespace of its own, where files without a name must not be programs. */
static int harden(void *arg)
{
	int status, fd;
	pid_t child;

	alarm(patience_s(60));
	if (unshare(CLONE_NEWPID))
		return 77;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* no alarm rings for the first */
		fd = open("/proc/sys/vm/memfd_noexec", O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "2", 1) != 1)
			_exit(77);
		_exit(make_one(arg));
	}
	return waitpid(child, &status, 0) == child && WIFEXITED(status)
		       ? WEXITSTATUS(status)
		       : 1;
}

static void is_made_on_hardened_hosts(void **state)
{
	pid_t child = fork();
	int status;

	(void)state;
	if (!child)
		_exit(harden(NULL));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip_because("no PID namespace with a writable "
			     "/proc/sys/vm/memfd_noexec (root, Linux 6.3)");
	assert_int_equal(WEXITSTATUS(status), 0);
}

/*
 * Devices
 */

/* How many places a device has mapped. */
static unsigned views(struct side *side)
{
	unsigned count = 0;

	snt__udp_lock(side->device);
	for (struct snt__link *at = side->device->shm.ins.next;
	     at != &side->device->shm.ins; at = at->next) {
		const struct snt__shm_link *link =
			snt__container(at, struct snt__shm_link, list);

		for (unsigned i = 0; i < link->shares.end; i++)
			count += link->shares.share[i].id != 0;
	}
	snt__udp_unlock(side->device);
	return count;
}

static void await_views(struct side *side, unsigned count)
{
	uint64_t begin = snt__udp_now();

	while (views(side) != count) {
		if (snt__udp_now() - begin > patience_ns(60))
			fail_msg("there are %u places, not %u", views(side), count);
		sched_yield();
	}
}

static void register_bytes(struct side *side, void *bytes)
{
	side->bytes = bytes;
	assert_success(side->control->reg_mr(side->pd, bytes, SIDE_BYTES, SIDE_ACCESS,
					     &side->mr));
}

/* What a side has is in a place from now on. */
static struct snt__shared_mem *move_in(struct side *side)
{
	struct snt__shared_mem *place = make_place(SIDE_BYTES);

	assert_success(side->control->dereg_mr(side->mr));
	free(side->bytes);
	register_bytes(side, place->bytes);
	return place;
}

static void close_in_place(struct side side[2], struct snt__shared_mem *place)
{
	for (unsigned i = 0; i < 2; i++)
		if (side[i].bytes == place->bytes)
			side[i].bytes = NULL;
	sides_close(side);
	snt__shared_mem_free(place);
}

/* The other has to map it first. */
static void settle(struct side *from, struct side *to)
{
	uint64_t before = shm_stats(to).shared;

	while (shm_stats(to).shared == before)
		side_check(from, to, 64 << 10);
}

static void is_read_where_it_is(void **state)
{
	static const uint32_t lengths[] = { 0,	   1,	  4095,	  4096,
					    65536, 65537, 200000, SIDE_BYTES / 2 };
	struct side side[2];
	struct snt__shared_mem *place;

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	settle(&side[0], &side[1]);
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		uint64_t before = shm_stats(&side[1]).shared;

		side_check(&side[0], &side[1], lengths[i]);
		if (lengths[i] >= 4096)
			assert_int_not_equal(shm_stats(&side[1]).shared, before);
		else
			assert_int_equal(shm_stats(&side[1]).shared, before);
		/* Not so the other way. */
		side_check(&side[1], &side[0], lengths[i]);
	}
	assert_int_equal(shm_stats(&side[1]).pulled, 0);
	close_in_place(side, place);
}

/* A READ is answered from there. */
static void read_is_answered_from_shared_memory(void **state)
{
	struct side side[2];
	struct snt__shared_mem *place;

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	settle(&side[0], &side[1]);
	for (unsigned i = 0; i < SIDE_BYTES / 2; i++)
		side[0].bytes[i] = i * 11 + i / 253;
	side_post(&side[1], &side[0], IBV_WR_RDMA_READ, SIDE_BYTES / 2);
	assert_int_equal(side_wait(&side[1]), IBV_WC_SUCCESS);
	assert_memory_equal(side[1].bytes + SIDE_BYTES / 2, side[0].bytes,
			    SIDE_BYTES / 2);
	assert_int_not_equal(shm_stats(&side[1]).shared, 0);
	close_in_place(side, place);
}

static void is_taken_back(void **state)
{
	struct side side[2];
	struct snt__shared_mem *place;
	void *heap = calloc(1, SIDE_BYTES);

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	settle(&side[0], &side[1]);
	assert_int_equal(views(&side[1]), 1);
	assert_success(side[0].control->dereg_mr(side[0].mr));
	await_views(&side[1], 0);
	snt__shared_mem_free(place);
	register_bytes(&side[0], heap);
	side_check(&side[0], &side[1], SIDE_BYTES / 2);
	sides_close(side);
}

/* The next place is mostly where the last one was. */
static void an_address_may_be_another_place_by_now(void **state)
{
	struct side side[2];
	struct snt__shared_mem *place;

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	for (unsigned i = 0; i < 20; i++) {
		settle(&side[0], &side[1]);
		assert_success(side[0].control->dereg_mr(side[0].mr));
		snt__shared_mem_free(place);
		place = make_place(SIDE_BYTES);
		register_bytes(&side[0], place->bytes);
		side_check(&side[0], &side[1], 100000);
	}
	await_views(&side[1], 1);
	close_in_place(side, place);
}

/* More than a link can know: the rest goes through the ring. */
static void more_regions_than_a_link_knows_go_through_the_ring(void **state)
{
	struct snt__shared_mem *place[SNT__SHM_PLACES_MAX + 10];
	struct ibv_mr *mr[SNT__SHM_PLACES_MAX + 10], *own;
	struct side side[2];
	uint8_t *bytes;

	(void)state;
	sides_open(side, &by_memory);
	bytes = side[0].bytes;
	own = side[0].mr;
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < SNT__SHM_PLACES_MAX + 10; i++) {
			if (!round) {
				place[i] = make_place(SIDE_BYTES);
				register_bytes(&side[0], place[i]->bytes);
				mr[i] = side[0].mr;
			}
			side[0].bytes = place[i]->bytes;
			side[0].mr = mr[i];
			side_check(&side[0], &side[1], 20000);
		}
		await_views(&side[1], SNT__SHM_PLACES_MAX);
	}
	for (unsigned i = 0; i < SNT__SHM_PLACES_MAX + 10; i++) {
		assert_success(side[0].control->dereg_mr(mr[i]));
		snt__shared_mem_free(place[i]);
	}
	await_views(&side[1], 0);
	side[0].bytes = bytes;
	side[0].mr = own;
	sides_close(side);
}

/*
 * The socket that offers and ends go over is full
 */

/* With bells, which a stopped peer does not take. It has until snt__udp_unlock(). */
static void stop_hearing(struct side *deaf, struct side *from)
{
	struct snt__shm_link *link;

	snt__udp_lock(deaf->device);
	snt__udp_lock(from->device);
	link = snt__shm_find(&from->device->shm, deaf->device->address.gid,
			     deaf->device->share.seat.number);
	assert_non_null(link);
	while (snt__shm_say(link, SNT__SHM_WORD_BELL, 0, -1))
		;
	snt__udp_unlock(from->device);
}

static void lost_withdrawal_is_repeated(void **state)
{
	struct side side[2];
	struct snt__shared_mem *place;

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	settle(&side[0], &side[1]);
	stop_hearing(&side[1], &side[0]);
	assert_success(side[0].control->dereg_mr(side[0].mr));
	snt__shared_mem_free(place);
	snt__udp_unlock(side[1].device);
	/* Nothing is sent, and still the peer learns of it. */
	await_views(&side[1], 0);
	place = make_place(SIDE_BYTES);
	register_bytes(&side[0], place->bytes);
	settle(&side[0], &side[1]);
	assert_int_equal(views(&side[1]), 1);
	close_in_place(side, place);
}

/* It goes through the ring until the offer gets through. */
static void lost_offer_is_repeated(void **state)
{
	struct side side[2];
	struct snt__shared_mem *place;

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	stop_hearing(&side[1], &side[0]);
	for (unsigned i = 0; i < 4; i++)
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100000);
	snt__udp_unlock(side[1].device);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	settle(&side[0], &side[1]);
	assert_int_equal(views(&side[1]), 1);
	close_in_place(side, place);
}

/* Both at once, over and over: it may be back before its end was heard of. */
static void comes_back_before_its_end_is_heard_of(void **state)
{
	struct side side[2];
	struct snt__shared_mem *place;

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	for (unsigned i = 0; i < 20; i++) {
		settle(&side[0], &side[1]);
		stop_hearing(&side[1], &side[0]);
		assert_success(side[0].control->dereg_mr(side[0].mr));
		register_bytes(&side[0], place->bytes);
		side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100000);
		snt__udp_unlock(side[1].device);
		assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	settle(&side[0], &side[1]);
	assert_int_equal(views(&side[1]), 1);
	close_in_place(side, place);
}

/* Another peer's region in the same place ends: what is on its way from there
 * arrives. */
static void data_survive_the_end_of_a_neighbouring_region(void **state)
{
	struct side side[2];
	struct snt__shared_mem *place;
	struct ibv_mr *neighbour;

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	for (unsigned i = 0; i < 100; i++) {
		assert_success(side[0].control->reg_mr(side[0].pd, place->bytes, 4096,
						       SIDE_ACCESS, &neighbour));
		for (unsigned j = 0; j < 8; j++)
			side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE,
				  SIDE_BYTES / 2);
		assert_success(side[0].control->dereg_mr(neighbour));
		for (unsigned j = 0; j < 8; j++)
			assert_int_equal(side_wait(&side[0]), IBV_WC_SUCCESS);
	}
	assert_int_not_equal(shm_stats(&side[1]).shared, 0);
	assert_int_equal(side_stats(&side[0]).resent, 0);
	close_in_place(side, place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_place_is_found_by_its_addresses),
		cmocka_unit_test(is_for_reading_only),
		cmocka_unit_test(only_what_cannot_vanish_is_mapped),
		cmocka_unit_test(a_child_shares_no_memory),
		cmocka_unit_test(a_child_makes_its_own),
		cmocka_unit_test(memory_without_a_file_is_ordinary),
		cmocka_unit_test(a_file_size_limit_does_not_kill),
		cmocka_unit_test(a_pending_signal_stays),
		cmocka_unit_test(is_made_on_hardened_hosts),
		cmocka_unit_test(is_read_where_it_is),
		cmocka_unit_test(read_is_answered_from_shared_memory),
		cmocka_unit_test(is_taken_back),
		cmocka_unit_test(an_address_may_be_another_place_by_now),
		cmocka_unit_test(more_regions_than_a_link_knows_go_through_the_ring),
		cmocka_unit_test(lost_withdrawal_is_repeated),
		cmocka_unit_test(lost_offer_is_repeated),
		cmocka_unit_test(comes_back_before_its_end_is_heard_of),
		cmocka_unit_test(data_survive_the_end_of_a_neighbouring_region),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
