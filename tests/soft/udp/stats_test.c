/* SPDX-License-Identifier: MIT */
/* Queries of what devices and their QPs have lost, and of their receive buffers. */
#include "lib/test.h"

#include <netinet/in.h>
#include <sennit/ctx.h>
#include <sennit/device.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dev/provider.h"
#include "lib/udp_faults.h"
#include "lib/udp_side.h"

static struct snt_device_stats device_stats(struct side *side)
{
	struct snt_device_stats stats;

	snt__udp_device_stats(side->device, &stats);
	return stats;
}

static struct snt__lane_stats lane_stats(struct side *side)
{
	struct snt__lane_stats stats;

	snt__udp_lane_stats(side->device, side->qp, &stats);
	return stats;
}

/* A single QP, so that it has lost all that its device has. */
static void losses_are_counted(void **state)
{
	struct snt_device_stats from, to;
	struct side side[2];

	(void)state;
	side_timeout = SIDE_LOSSY;
	sides_open(side, NULL);
	side_check(&side[0], &side[1], 1000);
	faults_set((struct faults){ .seed = 1, .lost = 20, .doubled = 20 });
	for (unsigned i = 0; i < 10; i++)
		side_check(&side[0], &side[1], 300000);
	faults_set((struct faults){ 0 });
	from = device_stats(&side[0]);
	to = device_stats(&side[1]);
	assert_true(from.resends && to.out_of_order && to.duplicates);
	assert_true(from.packets_out > from.resends && to.packets_in);
	assert_int_equal(lane_stats(&side[0]).resends, from.resends);
	assert_int_equal(lane_stats(&side[0]).timeouts, from.timeouts);
	assert_int_equal(lane_stats(&side[1]).duplicates, to.duplicates);
	assert_int_equal(lane_stats(&side[1]).out_of_order, to.out_of_order);
	assert_true(lane_stats(&side[0]).round_trip_ns > 0);
	assert_true(lane_stats(&side[0]).window >= 4096);
	sides_close(side);
}

/* More than any small buffer holds, while the device takes nothing. */
static void flood(struct side *side)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(4791) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const char bytes[1000] = { 0 };

	memcpy(&to.sin_addr, side->device->address.gid + 12, 4);
	snt__udp_lock(side->device);
	for (unsigned i = 0; i < 2000; i++)
		assert_int_equal(sendto(fd, bytes, sizeof(bytes), 0,
					(struct sockaddr *)(void *)&to, sizeof(to)),
				 sizeof(bytes));
	snt__udp_unlock(side->device);
	close(fd);
}

static void drops_are_counted(void **state)
{
	const struct snt__udp_opts opts = { .buffer_bytes = 4096 };
	struct side side;

	(void)state;
	side_open(&side, 1, &opts);
	assert_int_equal(device_stats(&side).drops, 0);
	flood(&side);
	assert_true(device_stats(&side).drops > 0);
	assert_true(device_stats(&side).receive_buffer <
		    device_stats(&side).receive_buffer_wanted);
	side_close(&side);
}

static void contexts_tell(void **state)
{
	struct snt_ctx_opts opts = { .size = sizeof(opts), .soft = SNT_SOFT_ONLY };
	struct snt_device_stats stats = { .size = sizeof(stats) };
	struct snt_ctx *ctx;

	(void)state;
	assert_int_equal(snt_ctx_create(&opts, &ctx), 0);
	assert_int_equal(snt_device_query_stats(snt_ctx_device(ctx, 0), &stats), 0);
	assert_int_equal(stats.receive_buffer_wanted, SNT__UDP_BUFFER);
	assert_true(stats.receive_buffer > 0);
	assert_int_equal(stats.resends, 0);
	stats.size = 1;
	assert_int_equal(snt_device_query_stats(snt_ctx_device(ctx, 0), &stats),
			 -EINVAL);
	assert_int_equal(snt_ctx_destroy(ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(losses_are_counted),
		cmocka_unit_test(drops_are_counted),
		cmocka_unit_test(contexts_tell),
	};

	return cmocka_run_group_tests_name("udp_stats", tests, NULL, NULL);
}
