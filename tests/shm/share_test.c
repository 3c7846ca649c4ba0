/* SPDX-License-Identifier: MIT */
/* Memory that is read where it is, by devices of another process or of the same. */
#include "lib/test.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev/place.h"
#include "dev/soft/core.h"
#include "udp/side.h"

static const struct snt__udp_opts by_memory = { .shm = true };

static struct snt__place *make_place(size_t length)
{
	struct snt__place *place;

	assert_int_equal(snt__place_make(length, &place), 0);
	return place;
}

/*
 * Places
 */

static void a_place_is_found_by_its_addresses(void **state)
{
	struct snt__place *place[20], found;

	(void)state;
	for (unsigned i = 0; i < 20; i++)
		place[i] = make_place(1 + i * 3000);
	for (unsigned i = 0; i < 20; i++) {
		size_t size = place[i]->size;

		assert_true(size >= 1 + i * 3000);
		for (unsigned at = 0; at < size; at += 512)
			assert_int_equal(place[i]->bytes[at], 0);
		assert_true(snt__place_find(place[i]->bytes, size, &found));
		assert_int_equal(found.id, place[i]->id);
		assert_true(snt__place_find(place[i]->bytes + size - 1, 1, &found));
		assert_int_equal(found.id, place[i]->id);
		assert_false(snt__place_find(place[i]->bytes + size - 1, 2, &found));
		assert_false(snt__place_find(place[i]->bytes + 1, SIZE_MAX, &found));
	}
	assert_false(snt__place_find(&found, 1, &found));
	for (unsigned i = 0; i < 20; i++) {
		uint8_t *bytes = place[i]->bytes;

		snt__place_free(place[i]);
		assert_false(snt__place_find(bytes, 1, &found));
		for (unsigned j = i + 1; j < 20; j++)
			assert_true(snt__place_find(place[j]->bytes, 1, &found));
	}
	snt__place_free(NULL);
	assert_int_equal(snt__place_make(SIZE_MAX - 1, place), -ENOMEM);
}

static void only_what_cannot_vanish_is_mapped(void **state)
{
	int fd = memfd_create("sennit-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_true(fd >= 0 && file >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(snt__place_size(fd), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(snt__place_size(fd), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
	assert_int_equal(snt__place_size(fd), 4096);
	assert_int_equal(snt__place_size(file), 0);
	assert_int_equal(snt__place_size(-1), 0);
	close(fd);
	close(file);
}

/*
 * Devices
 */

static struct snt__shm_stats shm_stats(struct side *side)
{
	struct snt__shm_stats stats;

	snt__udp_lock(side->device);
	stats = side->device->shm.stats;
	snt__udp_unlock(side->device);
	return stats;
}

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
	while (views(side) != count)
		sched_yield();
}

static void register_bytes(struct side *side, void *bytes)
{
	side->bytes = bytes;
	assert_success(side->control->reg_mr(side->pd, bytes, SIDE_BYTES, SIDE_ACCESS,
					     &side->mr));
}

/* What a side has is in a place from now on. */
static struct snt__place *move_in(struct side *side)
{
	struct snt__place *place = make_place(SIDE_BYTES);

	assert_success(side->control->dereg_mr(side->mr));
	free(side->bytes);
	register_bytes(side, place->bytes);
	return place;
}

static void close_in_place(struct side side[2], struct snt__place *place)
{
	for (unsigned i = 0; i < 2; i++)
		if (side[i].bytes == place->bytes)
			side[i].bytes = NULL;
	sides_close(side);
	snt__place_free(place);
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
	struct snt__place *place;

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
static void is_read_by_who_asks(void **state)
{
	struct side side[2];
	struct snt__place *place;

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
	struct snt__place *place;
	void *heap = calloc(1, SIDE_BYTES);

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	settle(&side[0], &side[1]);
	assert_int_equal(views(&side[1]), 1);
	assert_success(side[0].control->dereg_mr(side[0].mr));
	await_views(&side[1], 0);
	snt__place_free(place);
	register_bytes(&side[0], heap);
	side_check(&side[0], &side[1], SIDE_BYTES / 2);
	sides_close(side);
}

/* The next place is mostly where the last one was. */
static void an_address_may_be_another_place_by_now(void **state)
{
	struct side side[2];
	struct snt__place *place;

	(void)state;
	sides_open(side, &by_memory);
	place = move_in(&side[0]);
	for (unsigned i = 0; i < 20; i++) {
		settle(&side[0], &side[1]);
		assert_success(side[0].control->dereg_mr(side[0].mr));
		snt__place_free(place);
		place = make_place(SIDE_BYTES);
		register_bytes(&side[0], place->bytes);
		side_check(&side[0], &side[1], 100000);
	}
	await_views(&side[1], 1);
	close_in_place(side, place);
}

/* More than a link can know: the rest goes through the ring. */
static void there_may_be_any_number(void **state)
{
	struct snt__place *place[SNT__SHM_PLACES_MAX + 10];
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
		snt__place_free(place[i]);
	}
	await_views(&side[1], 0);
	side[0].bytes = bytes;
	side[0].mr = own;
	sides_close(side);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_place_is_found_by_its_addresses),
		cmocka_unit_test(only_what_cannot_vanish_is_mapped),
		cmocka_unit_test(is_read_where_it_is),
		cmocka_unit_test(is_read_by_who_asks),
		cmocka_unit_test(is_taken_back),
		cmocka_unit_test(an_address_may_be_another_place_by_now),
		cmocka_unit_test(there_may_be_any_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
