//! When the replicas of groups were last compared, as text.

use terrane_client::GroupInfo;

/// How many regions of a group were compared, and how long ago the first of them.
pub fn of_group(group: &GroupInfo, now_ms: u64) -> String {
    match group.compared_regions {
        0 => "-".to_owned(),
        regions if regions >= group.regions => format!("{} ago", since(group.compared_ms, now_ms)),
        regions => format!("{regions} of {}, {} ago", group.regions, since(group.compared_ms, now_ms)),
    }
}

/// The same for all groups that have more than one replica; `None` if there are none.
pub fn of_all(groups: &[GroupInfo], now_ms: u64) -> Option<String> {
    let comparable = || groups.iter().filter(|group| group.members.len() > 1 && group.regions > 0);
    let regions: u32 = comparable().map(|group| group.regions).sum();
    let compared: u32 = comparable().map(|group| group.compared_regions.min(group.regions)).sum();
    let longest = comparable().map(|group| group.compared_ms).filter(|at| *at > 0).min();
    let Some(longest) = longest else {
        return (regions > 0).then(|| "replicas compared: of no region yet".to_owned());
    };
    let ago = since(longest, now_ms);
    Some(format!("replicas compared: of {compared} of {regions} regions, the first {ago} ago"))
}

fn since(at_ms: u64, now_ms: u64) -> String {
    match now_ms.saturating_sub(at_ms) / 1_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use terrane_client::ServerId;

    use super::*;

    fn group(regions: u32, compared_regions: u32, compared_ms: u64) -> GroupInfo {
        let members = (1..=3).map(|server| (ServerId(server), format!("s{server}:7700"))).collect();
        GroupInfo { members, regions, compared_regions, compared_ms, ..GroupInfo::default() }
    }

    #[test]
    fn it_is_said_what_was_compared_and_when() {
        let (now_ms, hour) = (100 * 3_600_000, 3_600_000);
        let (whole, part, none) = (group(2, 2, now_ms - 3 * hour), group(4, 1, now_ms - 2 * hour), group(1, 0, 0));
        assert_eq!(of_group(&whole, now_ms), "3 h ago");
        assert_eq!(of_group(&part, now_ms), "1 of 4, 2 h ago");
        assert_eq!(of_group(&none, now_ms), "-");
        let all = of_all(&[whole, part, none.clone()], now_ms);
        assert_eq!(all.as_deref(), Some("replicas compared: of 3 of 7 regions, the first 3 h ago"));
        assert_eq!(of_all(&[none], now_ms).as_deref(), Some("replicas compared: of no region yet"));
        assert_eq!(of_all(&[GroupInfo { members: Vec::new(), ..group(2, 0, 0) }], now_ms), None);
    }
}
