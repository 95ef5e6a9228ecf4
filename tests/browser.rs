//! The real page in headless Chromium against the real binary.

use anyhow::Result;
use lockstep_tests::{Chromium, Service};

#[tokio::test]
async fn the_page_opens() -> Result<()> {
    let service = Service::start();
    let chromium = Chromium::start().await?;
    chromium.client.goto(service.url()).await?;
    let title = chromium.client.title().await?;
    assert!(title.contains("Lockstep"), "{title:?}");
    chromium.screenshot("page").await?;
    chromium.close().await
}
