// SPDX-License-Identifier: BSD-3-Clause
// conformance/differences: each difference was seen with Linux 6.12 and rdma-core 44, in the
// kernel lab.
#include "differences.hpp"

#include <algorithm>
#include <span>

namespace conformance {

namespace {

// Several tests are left out for this reason.
constexpr char shared_with_child[] =
    "a child shares the kernel's objects with its parent: what it destroys is gone";
constexpr char unchecked_order[] = "librdmacm does not look whether a call is in its turn, and crashes";
constexpr char rejected_disconnects[] = "rdma_disconnect of a rejected id succeeds";
constexpr char more_elements[] = "a queue pair takes more elements than it was asked for";
constexpr char killed_answers[] = "the kernel answers a read for a process that is stopped";
constexpr char siw_local_error[] =
    "siw says of any bad local key only that the queue pair failed, or reports "
    "what was done before it as failed too";
constexpr char siw_terminate[] = "siw says of no request what its peer refused: all are flushed";
constexpr char siw_no_query[] = "its driver queries no shared receive queue";
constexpr char siw_order[] = "siw completes a write before the read that was posted before it";
constexpr char rxe_local_error[] =
    "rxe says of any bad local key only that the queue pair failed, and flushes "
    "what was posted before it";

constexpr char untold[] = "no event tells of the end";
constexpr char disconnects[] = "it disconnects an id";  // by number there is none

struct Difference {
    std::string_view device;  // the beginning of its name
    std::string_view test;
    const char *reason;
};

constexpr Difference differences[] = {
    {"siw", "a_child_exits", shared_with_child},
    {"siw", "a_child_destroys_what_it_inherited", shared_with_child},
    {"siw", "events_stay_with_the_parent", shared_with_child},
    {"siw", "set_up_stays_with_the_parent", shared_with_child},
    {"siw", "calls_out_of_their_order", unchecked_order},
    {"siw", "events_move_with_their_id", unchecked_order},
    {"siw", "a_rejection_is_seen_with_its_data", rejected_disconnects},
    {"siw", "posts_that_make_no_sense", more_elements},
    {"siw", "bad_wr_points_at_the_one_refused", more_elements},
    {"siw", "bad_wr_of_receives_too", more_elements},
    {"siw", "a_peer_is_killed_with_a_read_open", killed_answers},
    {"siw", "a_write_with_a_bad_local_key", siw_local_error},
    {"siw", "a_large_write_with_a_bad_local_key", siw_local_error},
    {"siw", "a_send_with_a_bad_local_key", siw_local_error},
    {"siw", "a_read_with_a_bad_local_key", siw_local_error},
    {"siw", "a_write_beyond_its_region", siw_local_error},
    {"siw", "a_region_of_another_protection_domain", siw_local_error},
    {"siw", "a_region_that_was_deregistered", siw_local_error},
    {"siw", "a_receive_with_a_bad_key", siw_local_error},
    {"siw", "a_disconnect_amid_large_requests", siw_order},
    {"siw", "large_messages_both_ways_do_not_block_each_other", siw_order},
    {"siw", "writes_that_are_not_allowed", siw_terminate},
    {"siw", "reads_that_are_not_allowed", siw_terminate},
    {"siw", "rights_that_are_missing", siw_terminate},
    {"siw", "a_region_that_the_target_deregistered", siw_terminate},
    {"siw", "a_request_fails_amid_posts", siw_terminate},
    {"siw", "an_error_while_the_target_answers", siw_terminate},
    {"siw", "a_write_that_is_not_allowed_with_nothing_behind_it", siw_terminate},
    {"siw", "a_send_too_long_is_an_invalid_request", siw_terminate},
    {"siw", "a_receive_that_cannot_be_filled_is_the_targets_own_error", siw_terminate},
    {"siw", "only_solicited_ones", "an error does not wake who waits for solicited completions"},
    {"siw", "too_much_private_data_is_refused", "siw takes 197 bytes of private data"},
    {"siw", "nobody_listens", "rdma_connect itself fails where nobody listens"},
    {"siw", "a_disconnect_amid_posts_and_polls",
     "siw takes requests while a connection ends that never complete"},
    {"siw", "elements_of_no_bytes",
     "siw follows a null pointer: its kernel thread dies, and with it the device"},
    {"siw", "its_places_are_free_again", siw_no_query},
    {"siw", "what_is_refused", siw_no_query},
    {"siw", "fewer_than_the_limit_is_an_event", siw_no_query},
    {"siw", "messages_of_no_bytes_need_no_key", "siw refuses a read without an element"},
    {"siw", "posts_behind_the_end_are_flushed", "siw refuses what is posted behind the end"},
    {"siw", "objects_in_use_are_not_destroyed", "its driver has unmapped the queue that the kernel keeps"},

    {"by number", "a_disconnect_flushes_what_is_open", disconnects},
    {"by number", "a_disconnect_amid_large_requests", disconnects},
    {"by number", "posts_behind_the_end_are_flushed", disconnects},
    {"by number", "the_receiver_disconnects_while_stalled", disconnects},
    {"by number", "the_sender_disconnects_while_the_receiver_is_stalled", disconnects},
    {"by number", "only_solicited_ones", disconnects},
    {"by number", "a_signal_interrupts_the_wait", disconnects},
    {"by number", "events_stay_with_the_parent", disconnects},
    {"by number", "shared_receives_stay_with_the_parent", disconnects},
    {"by number", "after_the_end_they_are_flushed", disconnects},
    {"by number", "a_disconnect_amid_posts_and_polls", disconnects},
    {"by number", "states_are_asked_for_while_it_ends", disconnects},

    {"by number", "a_write_that_is_not_allowed_with_nothing_behind_it", untold},
    {"by number", "an_overrun_of_the_receive_side_ends_the_connection", untold},

    {"rxe", "a_child_exits", shared_with_child},
    {"rxe", "a_child_destroys_what_it_inherited", shared_with_child},
    {"rxe", "events_stay_with_the_parent", shared_with_child},
    {"rxe", "set_up_stays_with_the_parent", shared_with_child},
    {"rxe", "calls_out_of_their_order", unchecked_order},
    {"rxe", "events_move_with_their_id", unchecked_order},
    {"rxe", "a_rejection_is_seen_with_its_data", rejected_disconnects},
    {"rxe", "posts_that_make_no_sense", more_elements},
    {"rxe", "bad_wr_points_at_the_one_refused", more_elements},
    {"rxe", "a_peer_is_killed_with_a_read_open", killed_answers},
    {"rxe", "a_write_with_a_bad_local_key", rxe_local_error},
    {"rxe", "a_large_write_with_a_bad_local_key", rxe_local_error},
    {"rxe", "a_send_with_a_bad_local_key", rxe_local_error},
    {"rxe", "a_read_with_a_bad_local_key", rxe_local_error},
    {"rxe", "a_write_beyond_its_region", rxe_local_error},
    {"rxe", "a_region_of_another_protection_domain", rxe_local_error},
    {"rxe", "a_region_that_was_deregistered", rxe_local_error},
    {"rxe", "a_receive_with_a_bad_key", rxe_local_error},
    {"rxe", "a_send_longer_than_its_receive",
     "rxe says of a send that is too long that the queue pair failed"},
    {"rxe", "a_send_with_immediate_longer_than_its_receive",
     "rxe says of a send that is too long that the queue pair failed"},
    {"rxe", "a_kept_send_longer_than_the_receive_that_comes",
     "rxe says of a send that is too long that the queue pair failed"},
    {"rxe", "a_send_too_long_is_an_invalid_request", "rxe says that it is a remote operation error"},
    {"rxe", "a_connection_goes_with_its_events_unfetched",
     "the server's ESTABLISHED comes when the client's program has fetched its own"},
    {"rxe", "clients_go_while_they_connect", "a client behind many that went hears nothing: not understood"},
    {"rxe", "only_solicited_ones", "an error does not wake who waits for solicited completions"},
    {"rxe", "a_disconnect_amid_posts_and_polls", "the other program has to disconnect too, and does not"},
    {"rxe", "calls_of_a_synchronous_id_wait",
     "its rdma_disconnect waits for the other program to disconnect"},
    {"rxe", "posts_behind_the_end_are_flushed", "not all that is posted behind the end completes"},
    {"rxe", "a_write_that_is_refused", "an unsignaled request that fails completes, as InfiniBand wants"},
    {"rxe", "too_much_private_data_is_refused", "an id whose rdma_connect was refused takes no second one"},
};

}  // namespace

const char *why_not(std::string_view device_name, std::string_view test) {
    const std::span all{differences};
    const auto found = std::ranges::find_if(
        all, [=](const Difference &one) { return device_name.starts_with(one.device) && one.test == test; });
    return found != all.end() ? found->reason : nullptr;
}

}  // namespace conformance
